# SPDX-License-Identifier: Apache-2.0
"""Where SGLang's releases, 0.5.9 to 0.5.23, define the functions that the drop-ins replace."""

from __future__ import annotations

from collections.abc import Callable

from graphfeed.sglang import _copies, _generation

_OPS = "sglang.kernels.ops.attention."
_COPIES = {
    function.__name__: function
    for function in (_copies.fused_metadata_copy_cuda, _copies.fused_metadata_copy_multi_cuda)
}
_DECODE = {"fused_dsa_decode_metadata": _generation.fused_dsa_decode_metadata}
_VERIFY = {"fused_dsa_target_verify_metadata": _generation.fused_dsa_target_verify_metadata}
_EXTEND = {"fused_dsa_draft_extend_metadata": _generation.fused_dsa_draft_extend_metadata}


def _pooled(functions: dict[str, Callable]) -> dict[str, Callable]:
    return {name + "_kpool": function for name, function in functions.items()}


# By module, its functions and their drop-ins. Every release with any has a module of COPIES.
COPIES: dict[str, dict[str, Callable]] = {
    _OPS + "dsa.fused_metadata_copy": _COPIES,  # 0.5.23
    _OPS + "fused_metadata_copy": _COPIES,  # 0.5.17
    "sglang.jit_kernel.fused_metadata_copy": _COPIES,  # 0.5.9
}
GENERATIONS: dict[str, dict[str, Callable]] = {
    _OPS + "dsa.metadata": {**_DECODE, **_VERIFY, **_EXTEND},  # 0.5.23
    _OPS + "dsa.kpool_metadata.decode": _pooled(_DECODE),
    _OPS + "dsa.kpool_metadata.verify": _pooled(_VERIFY),
    _OPS + "dsa.kpool_metadata.draft_extend": _pooled(_EXTEND),
    _OPS + "dsa_metadata": {**_DECODE, **_VERIFY, **_EXTEND},  # 0.5.16
    _OPS + "dsa_kpool_metadata.decode": _DECODE,  # 0.5.20
    _OPS + "dsa_kpool_metadata.verify": _VERIFY,
    _OPS + "dsa_kpool_metadata.draft_extend": _EXTEND,
    # 0.5.15
    "sglang.srt.layers.attention.triton_ops.dsa_metadata": {**_DECODE, **_VERIFY, **_EXTEND},
}
