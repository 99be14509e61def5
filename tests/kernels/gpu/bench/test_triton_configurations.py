"""Knobs of Triton sources and the configurations that are proposed: what changes, what stays."""

import ast

import pytest

from accelopt.kernels.triton.configurations import knobs
from accelopt.kernels.triton.configurations.knobs import find_knobs, set_numbers, set_options
from accelopt.kernels.triton.configurations.launch_configurations import KernelKind, kind_of
from accelopt.kernels.triton.configurations.proposals import proposals
from accelopt.kernels.triton.configurations.source import Source

HEADER = "import torch\nimport triton\nimport triton.language as tl\n\n\n"


def starter_source(starter, name):
    return Source(starter.solutions[f"plain_{name}"].main_source)


def knobs_of(source):
    [launch] = source.launches
    return launch, find_knobs(source, launch)


@pytest.mark.parametrize(
    "name, kind, knobs",
    [
        ("gemm_n4096_k4096", KernelKind.PRODUCT, {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32}),
        ("rmsnorm_h4096", KernelKind.ROWS, {"BLOCK": 512}),
        ("silu_and_mul_h14336", KernelKind.ELEMENTS, {"BLOCK": 256}),
        ("rope_h32_kv8_d128", KernelKind.ELEMENTS, {"HEADS": 1}),
        ("gqa_paged_decode_h32_kv8_d128_ps16", KernelKind.DECODE, {"BLOCK_N": 16}),
        (
            "gqa_ragged_prefill_causal_h32_kv8_d128",
            KernelKind.ATTENTION,
            {"BLOCK_M": 64, "BLOCK_N": 32},
        ),
    ],
)
def test_knobs_and_kinds_are_read_from_the_source(starter, name, kind, knobs):
    launch, found = knobs_of(starter_source(starter, name))
    assert {knob.name: knob.value for knob in found} == knobs
    assert kind_of(launch.kernel, found) is kind


def test_a_knob_is_set_where_its_value_stands(starter):
    source = starter_source(starter, "gemm_n4096_k4096")
    launch, knobs = knobs_of(source)
    edits = set_numbers(source, knobs, dict.fromkeys((knob.name for knob in knobs), 128))
    text = source.edited([*edits, *set_options(source, launch, {"num_warps": 8})])
    assert "BLOCK_M, BLOCK_N, BLOCK_K = 128, 128, 128" in text
    assert "num_warps=8" in text
    again = Source(text)
    [changed] = again.launches
    assert "num_warps=4" in again.edited(set_options(again, changed, {"num_warps": 4}))
    # Only numbers changed: the rest of the text is as it was.
    assert source.text.splitlines()[:30] == text.splitlines()[:30]


def test_problem_sizes_are_no_knobs():
    source = Source(
        HEADER + "@triton.jit\ndef k(x, D_HEAD: tl.constexpr, PAGE_SIZE: tl.constexpr):\n"
        "    p = tl.program_id(0)\n"
        "    o = p * D_HEAD + tl.arange(0, D_HEAD)\n"
        "    q = p * PAGE_SIZE + tl.arange(0, PAGE_SIZE)\n"
        "    tl.store(x + o, 0)\n\n\ndef run(x):\n    k[(1,)](x, D_HEAD=128, PAGE_SIZE=16)\n"
    )
    assert knobs_of(source)[1] == []


def test_proposals_are_valid_distinct_and_ordered(starter):
    for solution in starter.solutions.values():
        found = proposals(solution.main_source)
        assert len(found) > 8  # as many configurations as there are for elementwise blocks
        assert len({p.source for p in found}) == len(found)
        assert len({p.sentence for p in found}) == len(found)
        assert [p.promise for p in found] == sorted((p.promise for p in found), reverse=True)
        for proposal in found:
            ast.parse(proposal.source)


def test_sources_that_are_no_kernels_have_no_proposals():
    assert proposals("def run(x:\n") == []
    assert proposals("def run(x):\n    return x\n") == []


AUTOTUNED = (
    HEADER
    + """@triton.autotune(configs=[triton.Config({"BLOCK": 128}, num_warps=4)], key=["n"])
@triton.jit
def k(x, n, BLOCK: tl.constexpr):
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + o, 0, mask=o < n)


def run(x):
    k[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, x.numel())
    return x
"""
)


def test_an_autotuned_kernel_gets_other_configurations():
    found = [p for p in proposals(AUTOTUNED) if "Autotune" in p.sentence]
    assert found
    assert found[0].source.count("triton.Config") > 4
    assert "'BLOCK': 1024" in found[0].source


@pytest.mark.parametrize(
    ("grid", "value"),
    [
        ("lambda meta: (triton.cdiv(M, meta['B']), 1)", 128),
        ("(triton.cdiv(M, B),)", 128),
        ("(triton.cdiv(M, 64), 1)", 64),
        ("((M + 63) // 64,)", 64),
        ("(64,)", 64),
    ],
)
def test_a_tile_changes_only_where_the_grid_names_it(grid, value):
    text = HEADER + (
        "@triton.jit\ndef k(x, o, M, B: tl.constexpr):\n    i = tl.program_id(0) * B + tl.arange(0, B)\n"
        "    tl.store(o + i, tl.load(x + i, mask=i < M), mask=i < M)\n\n\n"
        f"def run(x):\n    M = x.numel()\n    B = 64\n    o = torch.empty_like(x)\n    k[{grid}](x, o, M, B=B)\n"
        "    return o\n"
    )
    source = Source(text)
    changed = source.edited(set_numbers(source, knobs_of(source)[1], {"B": 128}))
    assert changed == text.replace("B = 64", f"B = {value}")


WIDE_ROW = (
    HEADER
    + """@triton.jit
def row_kernel(x_ptr, y_ptr, WIDTH: tl.constexpr):
    row = tl.program_id(0)
    places = x_ptr + row * WIDTH + tl.arange(0, WIDTH)
    x = tl.load(places).to(tl.float32)
    tl.store(y_ptr + row * WIDTH + tl.arange(0, WIDTH), x * tl.rsqrt(tl.sum(x * x, axis=0)))


def run(x):
    y = torch.empty_like(x)
    row_kernel[(x.shape[0],)](x, y, WIDTH=2048)
    return y
""".replace("WIDTH", "BLOCK")
)


def test_the_width_of_a_row_is_no_tile_of_the_grid():
    source = Source(WIDE_ROW)
    assert knobs.tiles_in(source.launches[0].kernel) == {"BLOCK": knobs.Role.PROGRAM}
    assert knobs.find_knobs(source, source.launches[0]) == []


def test_arguments_are_added_before_remarks_and_behind_brackets():
    for given in (
        "x, n=(1 + 2),  # so many\n",
        "x, n=(1)  # so many, (or more)\n",
        "x",
        "",
        "(x), ",
    ):
        source = Source(f"f({given})")
        [statement] = source.tree.body
        call = Source(source.edited([source.adding(statement.value, "z=3")])).tree.body[0].value
        assert ast.unparse(call.keywords[-1]) == "z=3"
        assert len(call.args) + len(call.keywords) == 1 + len(statement.value.args) + len(
            statement.value.keywords
        )
