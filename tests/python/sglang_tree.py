# SPDX-License-Identifier: Apache-2.0
"""A package named sglang with the modules and signatures of a release, and bodies that only note.

Its parameters are written here as the releases published them, by hand: nothing of graphfeed's.
"""

from __future__ import annotations

from test_sglang import MULTI, SINGLE

STATE = "req_pool_indices req_to_token cache_seqlens cu_seqlens_k page_table_1"
DSA = "dsa_cache_seqlens dsa_cu_seqlens_k real_page_table bs"
COPIES = {"fused_metadata_copy_cuda": SINGLE, "fused_metadata_copy_multi_cuda": MULTI}
GENERATIONS = {
    "decode": f"seq_lens {STATE} {DSA} max_len dsa_index_topk physical_page_size".split(),
    "target_verify": f"seq_lens {STATE} seqlens_expanded {DSA} max_seqlen_k dsa_index_topk "
    "physical_page_size next_n paged_mqa_ctx_lens_2d=None".split(),
    "draft_extend": f"seq_lens extend_seq_lens {STATE} seqlens_expanded {DSA} total_len "
    "max_seqlen_k dsa_index_topk physical_page_size max_extend_len max_total_len "
    "static_extend_len=False".split(),
}
POOLED = {"decode": "decode", "target_verify": "verify", "draft_extend": "draft_extend"}
JIT = "sglang.jit_kernel.fused_metadata_copy"
TRITON_OPS = "sglang.srt.layers.attention.triton_ops.dsa_metadata"
OPS = "sglang.kernels.ops.attention."


def _generations(page_size):
    return {
        f"fused_dsa_{mode}_metadata": [
            page_size if name == "physical_page_size" else name for name in names
        ]
        for mode, names in GENERATIONS.items()
    }


def _pooled(package, page_size, suffix=""):
    plain = _generations(page_size)
    return {
        f"{package}.{module}": {
            f"fused_dsa_{mode}_metadata{suffix}": [
                *plain[f"fused_dsa_{mode}_metadata"],
                "index_kpool=1",
            ]
        }
        for mode, module in POOLED.items()
    }


_NSA = {
    name: [parameter.replace("dsa_", "nsa_") for parameter in parameters]
    for name, parameters in COPIES.items()
}
# By release: its modules, their functions, their parameters.
RELEASES = {
    "0.5.9": {JIT: _NSA},
    "0.5.13": {JIT: COPIES},
    "0.5.15": {JIT: COPIES, TRITON_OPS: _generations("real_page_size")},
    "0.5.16": {JIT: COPIES, OPS + "dsa_metadata": _generations("real_page_size")},
    "0.5.17": {
        OPS + "fused_metadata_copy": COPIES,
        OPS + "dsa_metadata": _generations("real_page_size"),
    },
    "0.5.20": {
        OPS + "fused_metadata_copy": COPIES,
        OPS + "dsa_metadata": _generations("real_page_size"),
        **_pooled(OPS + "dsa_kpool_metadata", "real_page_size"),
    },
    "0.5.22": {
        OPS + "fused_metadata_copy": COPIES,
        OPS + "dsa_metadata": _generations("physical_page_size"),
        **_pooled(OPS + "dsa_kpool_metadata", "physical_page_size"),
    },
    "0.5.23": {
        OPS + "dsa.fused_metadata_copy": COPIES,
        OPS + "dsa.metadata": _generations("physical_page_size"),
        **_pooled(OPS + "dsa.kpool_metadata", "physical_page_size", "_kpool"),
    },
}


def write_tree(folder, version, modules):
    """Writes the package into `folder`. Each function returns its own name."""
    write_module(folder, "sglang.srt.backend", "")
    (folder / "sglang" / "__init__.py").write_text(f"__version__ = {version!r}\n")
    for module, functions in modules.items():
        source = "".join(
            f"def {name}({', '.join(parameters)}):\n    return {name!r}\n\n\n"
            for name, parameters in functions.items()
        )
        write_module(folder, module, source)


def write_module(folder, name, source):
    path = folder.joinpath(*name.split(".")).with_suffix(".py")
    path.parent.mkdir(parents=True, exist_ok=True)
    for package in list(path.relative_to(folder).parents)[:-1]:
        (folder / package / "__init__.py").touch()
    path.write_text(source)


def names_of(modules):
    """Every published function as module.name."""
    return [f"{module}.{name}" for module, functions in modules.items() for name in functions]
