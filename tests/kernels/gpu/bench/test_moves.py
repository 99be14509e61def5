"""Moves on Triton sources: what changes, what stays, and what is left alone."""

import ast
import json
from pathlib import Path

import pytest

from accelopt.kernels.triton.moves import (
    arithmetic,
    host_synchronisation,
    masks,
)
from accelopt.kernels.triton.moves.knobs import find_knobs, set_options
from accelopt.kernels.triton.moves.launch_configurations import KernelKind, kind_of
from accelopt.kernels.triton.moves.propose import proposals
from accelopt.kernels.triton.moves.source import Source

EXPERIMENTS = Path(__file__).resolve().parents[4] / "experiments"
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
    edits = [edit for knob in knobs for edit in knob.set_to(128)]
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


def test_masks_leave_the_main_loop_and_stay_in_the_rest(starter):
    source = starter_source(starter, "gqa_ragged_prefill_causal_h32_kv8_d128")
    kernel = source.kernels["prefill_kernel"]
    first, second = [n for n in ast.walk(masks.peel_masks(kernel)) if isinstance(n, ast.For)]
    assert "mask=" not in ast.unparse(first)
    assert "tl.where" not in ast.unparse(first)
    assert ast.unparse(second.body) == ast.unparse(
        next(n for n in ast.walk(kernel.node) if isinstance(n, ast.For)).body
    )
    assert ast.unparse(first.iter.args[1]) == ast.unparse(second.iter.args[0])


def test_a_mask_on_something_else_is_kept(starter):
    source = starter_source(starter, "gemm_n4096_k4096")
    text = ast.unparse(masks.peel_masks(source.kernels["gemm_kernel"]))
    first = text[text.index("for start") : text.index("for start", text.index("for start") + 1)]
    assert "mask=rows[:, None] < M" in first
    assert "< K" not in first


def test_loops_with_an_early_end_are_left_alone():
    source = Source(
        HEADER + "@triton.jit\ndef k(x, n, B: tl.constexpr):\n"
        "    for s in range(0, n, B):\n"
        "        p = s + tl.arange(0, B)\n"
        "        v = tl.load(x + p, mask=p < n)\n"
        "        if tl.sum(v) > 0:\n            break\n"
    )
    assert masks.peel_masks(source.kernels["k"]) is None


def test_a_grid_that_is_asked_for_elsewhere_is_not_renumbered(starter):
    text = starter.solutions["plain_gqa_ragged_prefill_causal_h32_kv8_d128"].main_source
    asked = text.replace("block = tl.program_id(0)", "block = own_block()")
    hidden = asked.replace("@triton.jit\n", "@triton.jit\ndef place():\n    return tl.program_id(0)\n\n\n"
                           "@triton.jit\ndef own_block():\n    return place()\n\n\n@triton.jit\n", 1)  # fmt: skip
    moves = {name for one in proposals(text) for name in one.change.move.split("+")}
    assert "tighten_loop_bound" in moves
    assert {one.change.move for one in proposals(hidden)} == {"change_block_sizes"}


@pytest.mark.parametrize("argument", ["tl.float32", "dtype=tl.float32"])
def test_operands_are_multiplied_in_their_own_format(argument):
    source = Source(
        HEADER + "@triton.jit\ndef k(q_ptr, k_ptr, o_ptr, N: tl.constexpr):\n"
        "    q = tl.load(q_ptr).to(tl.float32)\n"
        f"    w = tl.load(k_ptr).to({argument})\n"
        "    p = tl.exp(tl.dot(q, tl.trans(w)))\n"
        "    v = tl.load(o_ptr).to(tl.float32)\n"
        "    tl.store(o_ptr, tl.dot(p, v) + tl.sum(v))\n"
    )
    text = ast.unparse(arithmetic.own_precision_dots(source.kernels["k"]))
    assert "q = tl.load(q_ptr)\n" in text and "w = tl.load(k_ptr)\n" in text
    # v has another use in float32, so it stays wide, and so does what it is multiplied with.
    assert "v = tl.load(o_ptr).to(tl.float32)" in text
    assert "tl.dot(p, v)" in text


WRITTEN_ANEW = {"fused_add_rmsnorm_h4096", "gemm_n4096_k4096", "rmsnorm_h4096", "softmax_n8192"}


def test_winners_of_the_recorded_run_are_still_proposed(starter):
    """Measured on an H200: experiments/flb_h200/results/libraries.json. Of the moves four of its eight are
    asked: the others are written anew as fast (experiments/flb_h200/README.md)."""
    recorded = EXPERIMENTS / "flb_h200" / "results" / "libraries.json"
    winners = {
        row["definition"]: row["changes"] for row in json.loads(recorded.read_text())["rows"]
    }
    for name in starter.definitions.keys() - WRITTEN_ANEW:
        found = proposals(starter.solutions[f"plain_{name}"].main_source, 12)
        assert winners[name] in {one.change.sentence for one in found}, name


def test_host_code_need_not_wait():
    source = Source("import torch\n\n\ndef run(x):\n    torch.cuda.synchronize()\n    return x\n")
    assert "synchronize" not in host_synchronisation.without_synchronisation(source)


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


TUTORIAL = (
    HEADER
    + """@triton.jit
def matmul_kernel(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    pid = tl.program_id(axis=0)
    columns = tl.cdiv(N, BN)
    rows = tl.cdiv(M, BM)
    pid_m = pid % rows
    pid_n = pid // rows % columns
    m = pid_m * BM + tl.arange(0, BM)
    n = pid_n * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        inner = k + tl.arange(0, BK)
        x = tl.load(a + m[:, None] * K + inner[None, :])
        y = tl.load(b + inner[:, None] * N + n[None, :])
        total += tl.dot(x, y)
    tl.store(c + m[:, None] * N + n[None, :], total)


def run(a, b):
    (M, K), N = a.shape, b.shape[1]
    c = torch.empty((M, N), device=a.device, dtype=a.dtype)
    matmul_kernel[(4096,)](a, b, c, M, N, K, BM=64, BN=64, BK=32)
    return c
"""
)


def test_a_grid_that_is_a_number_follows_the_tiles_that_its_kernel_counts():
    """Triton's tutorial 03 counts its tiles in the kernel and lets the host launch as many programs; with
    another tile and the same number some would address memory beyond the end."""
    owned = (
        'META: (4096 // (triton.cdiv(M, 64) * triton.cdiv(N, 64)) * triton.cdiv(M, META["BM"]) * '
    )
    tiled = [one.source for one in proposals(TUTORIAL) if "BM=64" not in one.source]
    assert tiled and all(owned in text for text in tiled)


def test_a_tile_whose_number_of_programs_nobody_can_tell_stays():
    """As before, where a count is not of one of the launch's arguments."""
    found = [
        one.source for one in proposals(TUTORIAL.replace("tl.cdiv(M, BM)", "tl.cdiv(M + 1, BM)"))
    ]
    assert found and all("BM=64" in text or "bm = 64\n" in text for text in found)


@pytest.mark.parametrize(
    ("grid", "wanted"),
    [
        ("(triton.cdiv(M, 64), 1)", "(triton.cdiv(M, 128), 1)"),
        ("((M + 63) // 64,)", "((M + (128 - 1)) // 128,)"),
        ("((M + 64 - 1) // 64,)", "((M + 128 - 1) // 128,)"),
        ("(64,)", "(64,)"),
    ],
)
def test_a_number_in_a_grid_is_a_tile_only_where_it_divides(grid, wanted):
    text = HEADER + (
        "@triton.jit\ndef k(x, o, M, B: tl.constexpr):\n    i = tl.program_id(0) * B + tl.arange(0, B)\n"
        "    tl.store(o + i, tl.load(x + i, mask=i < M), mask=i < M)\n\n\n"
        f"def run(x):\n    M = x.numel()\n    o = torch.empty_like(x)\n    k[{grid}](x, o, M, B=64)\n    return o\n"
    )
    source = Source(text)
    knobs = knobs_of(source)[1]
    changed = source.edited([edit for knob in knobs for edit in knob.set_to(128)])
    assert f"k[{wanted}](x, o, M, B={128 if wanted != grid else 64})" in changed
