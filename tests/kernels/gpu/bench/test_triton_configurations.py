"""Knobs of Triton sources and the configurations that are proposed: what changes, what stays."""

import ast

import pytest

from accelopt.kernels.triton.configurations import knobs
from accelopt.kernels.triton.configurations.knobs import find_knobs, set_options
from accelopt.kernels.triton.configurations.launch_configurations import KernelKind, kind_of
from accelopt.kernels.triton.configurations.proposals import proposals
from accelopt.kernels.triton.configurations.source import Source, grid_sizes

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


PRODUCT = (
    HEADER
    + """@triton.jit
def product_kernel(a_ptr, b_ptr, c_ptr, M, N, K, am, ak, bn, bk, cm, cn,
                   BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    at = 0
    while at < K:
        a_ptrs = a_ptr + (m[:, None] * am + (at + k)[None, :] * ak)
        b_ptrs = b_ptr + (n[None, :] * bn + (at + k)[:, None] * bk)
        a = tl.load(a_ptrs, mask=(m[:, None] < M) & ((at + k)[None, :] < K), other=0.0)
        b = tl.load(b_ptrs, mask=(n[None, :] < N) & ((at + k)[:, None] < K), other=0.0)
        total += tl.dot(a, b)
        at += BLOCK_K
    c_ptrs = c_ptr + m[:, None] * cm + n[None, :] * cn
    tl.store(c_ptrs, total.to(tl.float16), mask=(m[:, None] < M) & (n[None, :] < N))


def run(a, b):
    c = torch.empty((a.shape[0], b.shape[0]), dtype=torch.float16, device=a.device)
    am, ak = a.stride()
    bn, bk = b.stride()

    def grid(meta):
        return (triton.cdiv(c.shape[0], meta["BLOCK_M"]), triton.cdiv(c.shape[1], meta["BLOCK_N"]))

    product_kernel[grid](
        a, b, c, c.shape[0], c.shape[1], a.shape[1], am, ak, bn, bk, c.stride(0), c.stride(1),
        BLOCK_M=32, BLOCK_N=32, BLOCK_K=16,  # as large as one likes
    )
    return c
"""
)


def launch_of(text):
    return Source(text).launches[0]


def test_the_width_of_a_row_is_no_tile_of_the_grid():
    source = Source(WIDE_ROW)
    assert knobs.tile_roles(source.launches[0].kernel) == {"BLOCK": knobs.Role.PROGRAM}
    assert knobs.find_knobs(source, source.launches[0]) == []
    cut = Source(WIDE_ROW.replace("(x.shape[0],)", "(triton.cdiv(x.numel(), 2048),)"))
    [knob] = knobs.find_knobs(cut, cut.launches[0])
    assert knob.name == "BLOCK"
    set_anew = cut.edited(knob.set_to(512))
    assert "numel(), 512)" in set_anew and "BLOCK=512" in set_anew


def test_a_number_of_the_grid_that_two_tiles_have_is_neither_s():
    grid = "product_kernel[(triton.cdiv(c.shape[0], 32), triton.cdiv(c.shape[1], 32))]("
    source = Source(PRODUCT.replace("product_kernel[grid](", grid))
    assert [knob.name for knob in knobs.find_knobs(source, source.launches[0])] == []
    apart = Source(
        source.text.replace("BLOCK_N=32", "BLOCK_N=64").replace("c.shape[1], 32", "c.shape[1], 64")
    )
    assert [k.name for k in knobs.find_knobs(apart, apart.launches[0])] == ["BLOCK_M", "BLOCK_N"]


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


def test_a_grid_that_a_function_returns_is_read():
    assert [ast.unparse(size) for size in grid_sizes(launch_of(PRODUCT))] == [
        "triton.cdiv(c.shape[0], 32)", "triton.cdiv(c.shape[1], 32)",
    ]  # fmt: skip
