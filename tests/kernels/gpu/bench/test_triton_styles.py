"""Moves on kernels written in other styles: autotuned, steps counted in tiles, remarks, literals."""

import ast
import json

import pytest
from flb_traces import installed
from plain_kernels import HEADER
from test_moved_results import interpreted

from accelopt.kernels.triton.moves import gqa_packing, knobs, loops
from accelopt.kernels.triton.moves.propose import proposals
from accelopt.kernels.triton.moves.source import Source, grid_sizes

# A row as wide as its tile: `WIDTH` is no tile of the grid, which counts rows.
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

# Two passes over a row.
TWO_PASSES = (
    HEADER
    + """@triton.jit
def norm_kernel(x_ptr, y_ptr, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    squares = tl.zeros([BLOCK], dtype=tl.float32)
    tiles = (WIDTH + BLOCK - 1) // BLOCK
    for tile in range(tiles):
        column = tile * BLOCK + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * WIDTH + column, mask=column < WIDTH, other=0.0).to(tl.float32)
        squares += x * x
    scale = tl.rsqrt(tl.sum(squares, axis=0) / WIDTH)
    for tile in range(tiles):
        column = tile * BLOCK + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * WIDTH + column, mask=column < WIDTH, other=0.0).to(tl.float32)
        tl.store(y_ptr + row * WIDTH + column, x * scale, mask=column < WIDTH)


def run(x):
    y = torch.empty_like(x)
    norm_kernel[(x.shape[0],)](x, y, WIDTH=x.shape[1], BLOCK=128)
    return y
"""
)

# A product with an open loop, strides by one call, a grid by a function, tiles as literals.
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

# The number of heads that share keys worked out in the kernel, casts by a function.
CAST = (
    HEADER
    + """@triton.jit
def decode_kernel(q_ptr, k_ptr, o_ptr, count, BLOCK: tl.constexpr, DIM: tl.constexpr,
                  HEADS: tl.constexpr, GROUPS: tl.constexpr):
    program = tl.program_id(0)
    row = program // HEADS
    head = program % HEADS
    shared = HEADS // GROUPS
    group = head // shared
    channel = tl.arange(0, DIM)
    q = tl.cast(tl.load(q_ptr + (row * HEADS + head) * DIM + channel), tl.float32)
    highest = tl.full([], -1e30, tl.float32)
    total = tl.zeros([], tl.float32)
    result = tl.zeros([DIM], tl.float32)
    tiles = tl.cdiv(count, BLOCK)
    for tile in range(0, tiles):
        begin = tile * BLOCK
        token = begin + tl.arange(0, BLOCK)
        inside = token < count
        place = (token[:, None] * GROUPS + group) * DIM + channel[None, :]
        k = tl.cast(tl.load(k_ptr + place, mask=inside[:, None], other=0), tl.float32)
        score = tl.where(inside, tl.sum(k * q[None, :], axis=1), -1e30)
        higher = tl.maximum(highest, tl.max(score, axis=0))
        weight = tl.exp(score - higher)
        shrink = tl.exp(highest - higher)
        total = total * shrink + tl.sum(weight, axis=0)
        result = result * shrink + tl.sum(weight[:, None] * k, axis=0)
        highest = higher
    tl.store(o_ptr + (row * HEADS + head) * DIM + channel, tl.cast(result / total, tl.float16))


def run(q, k):
    o = torch.empty_like(q)
    decode_kernel[(q.shape[0] * 4,)](q, k, o, k.shape[0], BLOCK=16, DIM=32, HEADS=4, GROUPS=2)
    return o
"""
)


def on_launch(move, text):
    source = Source(text)
    return move(source, source.launches[0])


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


def test_a_loop_over_tiles_becomes_one_over_positions():
    node = loops.stepped_by_tiles(launch_of(CAST).kernel)
    text = ast.unparse(node)
    assert "for begin in range(0, count, BLOCK):" in text
    assert "begin = " not in text
    both = ast.unparse(loops.stepped_by_tiles(launch_of(TWO_PASSES).kernel))
    assert both.count(" in range(0, WIDTH, BLOCK):") == 2 and "tile" not in both.replace(
        "tiles", ""
    )


@pytest.mark.parametrize(
    "change",
    [
        ("token = begin +", "token = tile + begin +"),
        ("range(0, tiles)", "range(1, tiles)"),
        ("tl.cdiv(count, BLOCK)", "count // BLOCK"),
        ("        highest = higher\n", "        highest = higher\n        count = count - 1\n"),
        ("        highest = higher\n", "        highest = higher\n    last = tile\n"),
    ],
)
def test_other_loops_over_tiles_stay(change):
    assert change[0] in CAST
    assert loops.stepped_by_tiles(launch_of(CAST.replace(*change)).kernel) is None


def test_how_many_heads_share_keys_may_be_worked_out_in_the_kernel():
    text = on_launch(gqa_packing.heads_together, CAST)
    assert text is not None and "HEADS_TOGETHER=4 // 2" in text
    assert "tl.cast(" not in text.split("for tile")[1].split("tl.store")[0]


def test_a_grid_that_a_function_returns_is_read():
    assert [ast.unparse(size) for size in grid_sizes(launch_of(PRODUCT))] == [
        "triton.cdiv(c.shape[0], 32)", "triton.cdiv(c.shape[1], 32)",
    ]  # fmt: skip


@pytest.mark.skipif(not installed("torch", "triton"), reason="torch and triton are not installed")
def test_what_is_proposed_computes_what_it_did():
    lines = []
    for text, shapes in ((WIDE_ROW, [[3, 2048]]), (PRODUCT, [[37, 48], [40, 48]]),
                         (CAST, [[3, 4, 32], [45, 2, 32]]), (TWO_PASSES, [[3, 320]])):  # fmt: skip
        made = [text, *(proposal.source for proposal in proposals(text, 8))]
        lines += [json.dumps({"source": one, "shapes": shapes}) for one in made]
    errors = interpreted("shaped.py", lines)
    assert len(errors) == len(lines) and max(errors) < 3e-3, errors
