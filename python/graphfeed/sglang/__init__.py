# SPDX-License-Identifier: Apache-2.0
"""SGLang's fused metadata functions under their own names and arguments, and a switch to them.

The copy functions take the arguments of ``sglang.kernels.ops.attention.dsa.fused_metadata_copy`` in
its order, by position or by keyword. A field is absent where its source and destination are None.
Fields, extents and shapes are those of ``graphfeed.Metadata``; strided sources are read in place.
The work goes, in one launch, on the current stream of torch (or CuPy), whose tensors these are.

Errors: RuntimeError "must have dtype int32" for another dtype; otherwise as ``graphfeed.copy``.

The generating functions take the arguments of ``sglang.kernels.ops.attention.dsa.metadata``, and
``index_kpool`` as those of its ``kpool_metadata``. They fill what ``graphfeed.generate`` fills and
raise what it raises. No column past a request's length is written, where SGLang's write up to 127.

Keywords of older releases are taken too: ``nsa_*`` for ``dsa_*``, and ``real_page_size`` for
``physical_page_size``.

``install()`` puts these functions in the place of SGLang's own, ``uninstall()`` puts those back.
In a server of several processes set ``GRAPHFEED_SGLANG=1`` instead: see ``docs/migration.md``.
"""

from graphfeed.sglang._copies import fused_metadata_copy_cuda, fused_metadata_copy_multi_cuda
from graphfeed.sglang._generation import (
    fused_dsa_decode_metadata,
    fused_dsa_draft_extend_metadata,
    fused_dsa_target_verify_metadata,
)
from graphfeed.sglang._install import install, uninstall

__all__ = [
    "fused_dsa_decode_metadata",
    "fused_dsa_draft_extend_metadata",
    "fused_dsa_target_verify_metadata",
    "fused_metadata_copy_cuda",
    "fused_metadata_copy_multi_cuda",
    "install",
    "uninstall",
]
