"""The emulator of Gluon: kernels come out right, and each fault is caught."""

import sys

import ml_dtypes
import numpy as np
import pytest
from gluon_emulated import Fault, emulated, launch

HEADER = """
import torch
import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import async_copy
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared, warpgroup_mma, warpgroup_mma_init, warpgroup_mma_wait)

DTYPES = {torch.float16: "half"}
"""

PRODUCT = (
    HEADER
    + """
@gluon.jit
def copy_tiles(tiles, pointers, mask, step, BLOCK: gl.constexpr):
    for t in gl.static_range(len(tiles)):
        async_copy.async_copy_global_to_shared(tiles[t], pointers[t] + step * BLOCK, mask=mask)
    async_copy.commit_group()


@gluon.jit
def product(x_ptr, y_ptr, out_ptr, rows, steps, K: gl.constexpr, BLOCK: gl.constexpr):
    ACC: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 64, 16])
    COPY: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [4, 1], [1, 0])
    SHARED: gl.constexpr = gl.NVMMASharedLayout(128, 16, 2)
    row = gl.arange(0, 64, layout=gl.SliceLayout(1, COPY))
    column = gl.expand_dims(gl.arange(0, BLOCK, layout=gl.SliceLayout(0, COPY)), 0)
    at = gl.expand_dims(row, 1) * K + column
    pointers = (x_ptr + at, y_ptr + at)
    mask = gl.expand_dims(row < rows, 1)
    dtype: gl.constexpr = x_ptr.dtype.element_ty
    a0 = gl.allocate_shared_memory(dtype, [64, BLOCK], SHARED)
    b0 = gl.allocate_shared_memory(dtype, [64, BLOCK], SHARED)
    a1 = gl.allocate_shared_memory(dtype, [64, BLOCK], SHARED)
    b1 = gl.allocate_shared_memory(dtype, [64, BLOCK], SHARED)
    copy_tiles((a0, b0), pointers, mask, 0, BLOCK)
    acc = warpgroup_mma_init(gl.full([64, 64], 0.0, gl.float32, layout=ACC))
    for step in range(0, steps, 2):
        copy_tiles((a1, b1), pointers, mask, step + 1, BLOCK)
        async_copy.wait_group(1)
        fence_async_shared()
        acc = warpgroup_mma(a0, b0.permute((1, 0)), acc, is_async=True)
        acc = warpgroup_mma_init(warpgroup_mma_wait(0, deps=(acc,)))
        if step + 2 < steps:
            copy_tiles((a0, b0), pointers, mask, step + 2, BLOCK)
            async_copy.wait_group(1)
        else:
            async_copy.wait_group(0)
        fence_async_shared()
        acc = warpgroup_mma(a1, b1.permute((1, 0)), acc, is_async=True)
        acc = warpgroup_mma_init(warpgroup_mma_wait(0, deps=(acc,)))
    sums = warpgroup_mma_wait(0, deps=(acc,))
    row = gl.expand_dims(gl.arange(0, 64, layout=gl.SliceLayout(1, ACC)), 1)
    column = gl.expand_dims(gl.arange(0, 64, layout=gl.SliceLayout(0, ACC)), 0)
    gl.store(out_ptr + row * 64 + column, sums, mask=row < rows)
"""
)


def multiplied(text: str) -> float:
    """Runs PRODUCT, or what was made of it; the greatest error, infinite where a sum is NaN."""
    draw = np.random.default_rng(7)
    x, y = (draw.standard_normal((64, 256)).astype(ml_dtypes.bfloat16) for _ in range(2))
    out = np.zeros(64 * 64, np.float32)
    tensors = {"x_ptr": x.ravel()[: 50 * 256], "y_ptr": y.ravel()[: 50 * 256], "out_ptr": out}
    launch(emulated(text), "product", (1,), rows=50, steps=4, K=256, BLOCK=64, **tensors)
    wanted = np.zeros((64, 64), np.float32)
    wanted[:50, :50] = x[:50].astype(np.float32) @ y[:50].astype(np.float32).T
    error = np.abs(out.reshape(64, 64) - wanted).max()
    return np.inf if np.isnan(error) else float(error)


def test_a_pipelined_product_is_right_and_leaves_no_modules():
    before = {name for name in sys.modules if name.startswith(("torch", "triton"))}
    assert multiplied(PRODUCT) < 1e-3
    assert {name for name in sys.modules if name.startswith(("torch", "triton"))} == before


WAIT = "async_copy.wait_group(1)\n        fence_async_shared()"
MULTIPLY = "acc = warpgroup_mma(a0, b0.permute((1, 0)), acc, is_async=True)\n"
SETTLE = "        acc = warpgroup_mma_init(warpgroup_mma_wait(0, deps=(acc,)))\n"
SUMS = "    sums = warpgroup_mma_wait(0, deps=(acc,))"
EXTRA = "    acc = warpgroup_mma(a0, b0, acc, is_async=True)\n"


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        (WAIT, "fence_async_shared()", "without a wait"),
        (WAIT, WAIT.replace("1", "2"), "without a wait"),
        (WAIT, "async_copy.wait_group(1)", "without a wait and fence"),
        (WAIT, "fence_async_shared()\n        async_copy.wait_group(1)", "without a wait and fence"),
        ("    async_copy.commit_group()", "    pass", "without a wait"),
        ("wait_group(0)", "wait_group(1)", "without a wait"),
        (MULTIPLY + SETTLE, MULTIPLY, "race: an outstanding product reads"),
        (MULTIPLY, MULTIPLY + "        a0.store(a1.load(COPY))\n", "race: an outstanding product reads"),
        ("(a0, b0), pointers, mask, step + 2", "(a1, b1), pointers, mask, step + 2", "race: a copy is"),
        ("range(0, steps, 2)", "range(0, steps - 2, 2)", "ends with copies outstanding"),
        (SUMS, SUMS + "\n" + EXTRA, "ends with products outstanding"),
        (SUMS, EXTRA + SUMS.replace("wait(0", "wait(1"), "leaves the product outstanding"),
        (SUMS, "    sums = acc * 1.0", "read before its wait"),
        (SUMS, "    sums = acc", "read before its wait"),
        ("row < rows, 1)", "row < rows + 1, 1)", "out of range"),
        ("row * 64 + column", "row * 128 + column", "out of range"),
        ("sums, mask=row < rows", "sums, mask=mask", "layouts differ"),
        ("acc = warpgroup_mma_init(gl.full", "acc = (gl.full", "acc changes its type"),
        ("[4, 1], [16, 64, 16]", "[8, 1], [16, 64, 16]", "not for 4 warps"),
        ("[4, 1], [16, 64, 16]", "[4, 1], [16, 60, 16]", "no instruction of wgmma"),
        ("gl.NVMMASharedLayout(128, 16, 2)", "gl.SwizzledSharedLayout(8, 1, 8, [1, 0])", "no operand"),
        ("gl.BlockedLayout([1, 8], [4, 8]", "gl.BlockedLayout([1, 1], [1, 32]", "less than four bytes"),
        ("a1, b1.permute((1, 0))", "a1, b1.slice(0, 32).permute((1, 0))", "no product"),
    ],
)  # fmt: skip
def test_a_fault_is_caught(old, new, why):
    assert old in PRODUCT
    with pytest.raises(Fault, match=why):
        multiplied(PRODUCT.replace(old, new))


COPY = (
    HEADER
    + """
@gluon.jit
def copied(x_ptr, out_ptr, n, WAITS: gl.constexpr):
    L: gl.constexpr = gl.BlockedLayout([1, 4], [32, 1], [4, 1], [1, 0])
    row = gl.arange(0, 4, layout=gl.SliceLayout(1, L))[:, None]
    at = row * 4 + gl.arange(0, 4, layout=gl.SliceLayout(0, L))[None, :]
    shared: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [1, 0])
    memory = gl.allocate_shared_memory(gl.float32, [4, 4], shared)
    memory.store(gl.full([4, 4], 5.0, gl.float32, layout=L))
    async_copy.async_copy_global_to_shared(memory, x_ptr + at, mask=row < n)
    async_copy.commit_group()
    gl.store(x_ptr, 99.0)
    if WAITS:
        async_copy.wait_group(0)
    gl.store(out_ptr + at, memory.load(L))
    async_copy.wait_group(0)
"""
)


@pytest.mark.parametrize(
    ("waits", "wanted"), [(0, [np.nan] * 16), (1, [99, *range(1, 8), *[0] * 8])]
)
def test_a_copy_reads_when_it_lands_and_writes_zeros_where_it_is_masked(waits, wanted):
    """The zeros: Triton 3.6 writes `cp.async` with a source size of 0 (its PTX for sm_90)."""
    out, x = np.zeros(16, np.float32), np.arange(16, dtype=np.float32)
    launch(emulated(COPY), "copied", (1,), x_ptr=x, out_ptr=out, n=2, WAITS=waits)
    np.testing.assert_array_equal(out, np.asarray(wanted, np.float32))


ELEMENTS = (
    HEADER
    + """
HALF = gl.constexpr(0.5)


@gluon.constexpr_function
def doubled(n):
    return 2 * sum(1 for _ in range(n))


@gluon.jit
def kernel(x_ptr, h_ptr, i_ptr, out_ptr, n, scale, BLOCK: gl.constexpr):
    L: gl.constexpr = gl.BlockedLayout([1, 1], [1, 32], [1, gl.num_warps()], [1, 0])
    SHARED: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [0])
    ROW: gl.constexpr = gl.SliceLayout(0, L)
    at = gl.arange(0, BLOCK, layout=ROW)
    x = gl.load(x_ptr + at)
    h = gl.load(h_ptr + at)
    i = gl.load(i_ptr + at)
    result = EXPRESSION
    gl.store(out_ptr + at, result)
"""
)
X = np.array([-7.5, -1.0, 0.25, 9.0], np.float32)
H = np.array([1.0, 3.0, -2.0, 1e-3], ml_dtypes.bfloat16)
I = np.array([-7, 7, 0, 3], np.int32)


def elements(expression: str) -> np.ndarray:
    out = np.zeros(4, np.float32)
    given = {"x_ptr": X, "h_ptr": H, "i_ptr": I, "out_ptr": out}
    text = ELEMENTS.replace("EXPRESSION", expression)
    launch(emulated(text), "kernel", (1,), n=3, scale=0.1, BLOCK=4, num_warps=2, **given)
    return out


SMALL = np.float32(0.1)


@pytest.mark.parametrize(
    ("expression", "wanted"),
    [
        ("i // 2", [-3, 3, 0, 1]),
        ("i % 4", [-3, 3, 0, 3]),
        ("i / 2", I / 2),
        ("(1 << i // 3) - -i", [-7, 11, 1, 5]),
        ("h * 0.1", H * ml_dtypes.bfloat16(0.1)),
        ("h * scale", H.astype(np.float32) * SMALL),
        ("h / 3", H.astype(np.float32) / 3),
        ("x.to(gl.bfloat16)", X.astype(ml_dtypes.bfloat16)),
        ("i.to(gl.int64) * 4294967296 / 4294967296.0", I),
        ("gl.where((i < n) & ~(x > 0.0), x, -float('inf'))", [-7.5, -np.inf, -np.inf, -np.inf]),
        ("gl.exp2(gl.maximum(x, 1)) + gl.abs(gl.minimum(i, 0))", [9, 2, 2, 512]),
        ("gl.fma(x, HALF, 1.0)", X / 2 + 1),
        ("x - gl.max(x, 0) + gl.sum(i, 0)", X - 9 + 3),
        ("gl.sum(gl.expand_dims(x, 0) + gl.full([2, 4], 1, gl.int32, layout=L), 0)", 2 * X + 2),
        ("gl.full([BLOCK], gl.cdiv(n, 2) + doubled(BLOCK), gl.float32, layout=ROW)", [10] * 4),
        ("gl.load(x_ptr + at + 2, mask=at < 2, other=n)", [0.25, 9, 3, 3]),
        ("gl.load(x_ptr + at + 2, mask=at < 2)", [0.25, 9, np.nan, np.nan]),
        ("gl.allocate_shared_memory(gl.float32, [4], SHARED).load(ROW)", [np.nan] * 4),
        ("at + gl.program_id(0) + gl.num_programs(0) + gl.num_warps()", [3, 4, 5, 6]),
        ("x\n    for k in range(n):\n        result += k.to(gl.float32)", X + 3),
        (
            "gl.allocate_shared_memory(gl.float32, [2, 4], SHARED)\n"
            "    result.index(n - 2).store(x)\n"
            "    result = result.index(1).load(ROW)", X,
        ),
    ],
)  # fmt: skip
def test_expressions_are_computed_as_triton_does(expression, wanted):
    np.testing.assert_allclose(elements(expression), np.asarray(wanted, np.float32), rtol=1e-6)


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        ("x + gl.convert_layout(x, gl.SliceLayout(1, L))", "layouts differ"),
        ("x + gl.arange(0, 8, layout=ROW)", "shapes differ"),
        ("gl.expand_dims(x, 1)", "added to a slice along it"),
        ("gl.arange(0, 3, layout=ROW)", "powers of two"),
        ("gl.arange(0, n, layout=ROW)", "a constexpr is needed"),
        ("4\n    result = gl.arange(0, result, layout=ROW)", "a constexpr is needed"),
        ("gl.arange(0, 4, layout=L)", "rank"),
        ("gl.arange(0, 4, layout=gl.SliceLayout(0, gl.BlockedLayout([1, 1], [1, 32], [1, 4], [1, 0])))", "warps"),
        ("gl.load(x_ptr + at + 1)", "out of range"),
        ("gl.load(x_ptr + at - 1, mask=at < n)", "out of range"),
        ("gl.load(x_ptr, mask=at < n)", "the mask is"),
        ("gl.exp2(h)", "float32 alone"),
        ("x // 2", "floordiv of floats"),
        ("x_ptr * 2", "of a pointer"),
        ("x if x > 0 else x", "decides no branch"),
        ("gl.BlockedLayout([1], [32], [2], [0])", "no value of a kernel"),
        ("gl.static_assert(BLOCK == 8)", "static"),
        ("gl.load(i_ptr)[:, None]", "a block with a layout"),
        ("(x > 0) + (x < 9)", "add of truths"),
        ("0\n    for k in range(n):\n        result = result + x", "result changes its type"),
        ("x\n    if n > 2:\n        result = result[None, :]", "result changes its type"),
        ("gl.allocate_shared_memory(gl.float32, [4], SHARED).slice(2, 4).load(ROW)", "2 to 6"),
        ("gl.allocate_shared_memory(gl.float32, [4], SHARED).slice(n, 4).load(ROW)", "constexpr"),
        ("gl.allocate_shared_memory(gl.float32, [4], SHARED, h)", "is stored to"),
        ("gl.allocate_shared_memory(gl.float32, [4], gl.SwizzledSharedLayout(1, 1, 1, [1, 0]))", "rank"),
        ("async_copy.async_copy_global_to_shared(gl.allocate_shared_memory(gl.float32, [4], SHARED), x_ptr + at)", "blocked"),
    ],
)  # fmt: skip
def test_what_the_compiler_refuses_is_refused(expression, why):
    with pytest.raises(Fault, match=why):
        elements(expression)
