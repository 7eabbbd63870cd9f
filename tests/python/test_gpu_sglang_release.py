# SPDX-License-Identifier: Apache-2.0
"""The installed SGLang's functions, switched and not, on a GPU: the same results.

Tables of a generation are compared up to each request's length, where SGLang's write further.
Layouts are those that SGLang's kernels serve: dense sources, dense destinations that may be longer.
"""

from __future__ import annotations

import inspect

import numpy as np
import pytest
from buffers import DENSE, FIELDS, SENTINEL, SLICED, Case, Device, Layout, Sizes, assert_same_memory
from eager_copy import DECODE, DRAFT_EXTEND, TARGET_VERIFY
from generate_case import TABLES
from graphfeed import sglang
from test_gpu_capture import KERNEL_NODE, captured_nodes
from test_sglang import EACH_MODE, MULTI_FIELDS, multi, single, without
from test_sglang_generate import OUTPUTS, case_of, named
from test_sglang_install import get

pytestmark = pytest.mark.gpu

LONGER = Layout(lead=4, longer=3)
LENGTHS = (7, 64, 190, 65, 130)  # no shorter than the draft tokens, which SGLang's do not expect
DRAFT = 4
MODES = {DECODE: "decode", TARGET_VERIFY: "target_verify", DRAFT_EXTEND: "draft_extend"}


@pytest.fixture(scope="module")
def place(torch, warm_kernels):
    return Device(torch)


@pytest.fixture
def both(torch, installed_release):
    """Runs SGLang's function and the one that takes its place, each on a case of its own."""

    def run(name, make, arguments):
        cases = {}
        for side in ("published", "switched"):
            if side == "switched":
                sglang.install()
            function = get(name)
            assert (function is installed_release[name]) == (side == "published")
            cases[side] = make()
            torch.cuda.synchronize()
            function(**arguments(cases[side], function))
            torch.cuda.synchronize()
        sglang.uninstall()
        return cases["published"], cases["switched"]

    return run


def of(installed_release, function):
    found = [name for name in sorted(installed_release) if name.endswith("." + function)]
    if not found:
        pytest.skip(f"{function}: this release has none")
    return found


def in_release(values, function):
    """The arguments under the names that the release's function has for them."""
    return dict(zip(inspect.signature(function).parameters, values.values()))


@EACH_MODE
@pytest.mark.parametrize("layout", [DENSE, LONGER], ids=["dense", "longer"])
@pytest.mark.parametrize(
    "absent",
    [(), ("real_page_table",), ("flashmla_num_splits", "flashmla_metadata")],
    ids=["all", "pages", "flashmla"],
)
def test_a_copy_to_one_is_the_same(both, installed_release, place, mode, layout, absent):
    width = Sizes(mode).width
    published, switched = both(
        *of(installed_release, "fused_metadata_copy_cuda"),
        lambda: Case(Sizes(mode), without(*absent), 1, DENSE, (layout,), place),
        lambda case, function: in_release(
            single(case, max_len=width, max_seqlen_k=width), function
        ),
    )
    assert_same_memory(switched.destinations, published.destinations)
    switched.assert_equals_eager()


@pytest.mark.parametrize("layout", [DENSE, LONGER], ids=["dense", "longer"])
@pytest.mark.parametrize(
    "absent",
    [(), ("real_page_table",), ("flashmla_num_splits", "flashmla_metadata")],
    ids=["all", "pages", "flashmla"],
)
def test_a_copy_to_three_is_the_same(both, installed_release, place, layout, absent):
    fields = tuple(name for name in MULTI_FIELDS if name not in absent)
    assert set(fields) < set(FIELDS)
    published, switched = both(
        *of(installed_release, "fused_metadata_copy_multi_cuda"),
        lambda: Case(Sizes(DECODE), fields, 3, DENSE, (layout,), place),
        lambda case, function: in_release(multi(case), function),
    )
    assert_same_memory(switched.destinations, published.destinations)
    switched.assert_equals_eager()


def generation(place, mode, *, fields=(), extend=None, layout=SLICED, **arguments):
    """A case, and what makes its arguments for a function; page_size and pool among them."""
    chosen = fields or [name for name in OUTPUTS if mode != DECODE or name != "seqlens_expanded"]
    extended = {}
    if mode == DRAFT_EXTEND:
        extended = {"num_draft_tokens": DRAFT} if extend is None else {"extend_seq_lens": extend}
        if extend is not None:
            arguments["seqlens_expanded_size"] = sum(extend)

    def make():
        return case_of(
            mode, chosen, seq_lens=LENGTHS, place=place, arguments=arguments, **extended,
            layouts=(layout,), dtype=np.int64, ctx_blocks=True,
        )  # fmt: skip

    def arguments_of(case, function):
        values = {
            name: place.upload(value) if isinstance(value, np.ndarray) else value
            for name, value in named(case).items()
        }
        names = inspect.signature(function).parameters
        if "real_page_size" in names:
            values["real_page_size"] = values.pop("physical_page_size")
        if "index_kpool" in arguments:
            values["index_kpool"] = arguments["index_kpool"]
        return values

    return make, arguments_of


def assert_same_live(switched, published):
    """Vectors whole, margins too; of tables the live prefix of each row."""
    (ours,), (theirs,) = switched.destinations, published.destinations
    lengths = np.array(LENGTHS) + (DRAFT if switched.mode == TARGET_VERIFY else 0)
    rows = np.full(len(LENGTHS), switched.rows // len(LENGTHS))
    if "extend_seq_lens" in switched.host:
        rows = switched.host["extend_seq_lens"]
    live = np.repeat(lengths, rows)
    for name in ours.memory:
        if name not in TABLES:
            a, b = (each.place.download(each.memory[name]) for each in (ours, theirs))
            assert (a == b).all(), name
            continue
        a, b = (each.tensors[name].cpu().numpy() for each in (ours, theirs))
        page = switched.arguments.get("page_size", 64) if name == "real_page_table" else 1
        for row, length in enumerate(live):
            columns = -(-int(length) // page)
            assert (a[row, :columns] == b[row, :columns]).all(), (name, row)
            assert (a[row, :columns] != SENTINEL).all(), (name, row)


@EACH_MODE
@pytest.mark.parametrize(
    "arguments",
    [{}, {"page_size": 1}, {"page_size": 16}, {"absent": "page_table_1"}],
    ids=["both tables", "one token a page", "16 tokens a page", "pages alone"],
)
def test_a_generation_is_the_same(both, installed_release, place, mode, arguments):
    arguments = dict(arguments)
    absent = {arguments.pop("absent", None)}
    absent |= {"real_page_table"} if arguments.get("page_size") == 1 else set()
    absent |= {"seqlens_expanded"} if mode == DECODE else set()
    fields = [name for name in OUTPUTS if name not in absent]
    for name in of(installed_release, f"fused_dsa_{MODES[mode]}_metadata"):
        published, switched = both(name, *generation(place, mode, fields=fields, **arguments))
        assert_same_live(switched, published)


def test_a_verification_with_context_lengths_is_the_same(both, installed_release, place):
    fields = [*OUTPUTS, "paged_mqa_ctx_lens_2d"]
    for name in of(installed_release, "fused_dsa_target_verify_metadata"):
        made = generation(place, TARGET_VERIFY, fields=fields, layout=DENSE)
        published, switched = both(name, *made)
        assert_same_live(switched, published)


def test_an_extension_by_rows_of_each_request_is_the_same(both, installed_release, place):
    for name in of(installed_release, "fused_dsa_draft_extend_metadata"):
        made = generation(place, DRAFT_EXTEND, extend=(1, 4, 2, 3, 4))
        published, switched = both(name, *made)
        assert_same_live(switched, published)


@EACH_MODE
def test_a_pooled_generation_is_the_same(both, installed_release, place, mode):
    names = [
        name
        for name, function in sorted(installed_release.items())
        if f"fused_dsa_{MODES[mode]}_metadata" in name
        and "index_kpool" in inspect.signature(function).parameters
    ]
    if not names:
        pytest.skip("test_a_pooled_generation_is_the_same: this release has none")
    for name in names:
        published, switched = both(name, *generation(place, mode, index_kpool=4))
        assert_same_live(switched, published)


def test_a_switched_copy_is_one_kernel(torch, installed_release, place):
    case = Case(Sizes(DECODE), place=place)
    (name,) = of(installed_release, "fused_metadata_copy_cuda")
    sglang.install()
    arguments = in_release(single(case), get(name))
    assert captured_nodes(torch, lambda: get(name)(**arguments)) == [KERNEL_NODE]
