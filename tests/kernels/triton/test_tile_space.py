"""Tiles, warps and stages of Triton solutions as a space of knobs."""

from accelopt.kernels.triton.configurations.tile_space import tile_space, with_values
from accelopt.search.knob_search import STANDARD

PRODUCT = """
import torch
import triton
import triton.language as tl


@triton.jit
def matmul(a, b, c, M, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        inner = k + tl.arange(0, BLOCK_K)
        x = tl.load(a + rows[:, None] * K + inner[None, :])
        y = tl.load(b + inner[:, None] * N + columns[None, :])
        total += tl.dot(x, y)
    tl.store(c + rows[:, None] * N + columns[None, :], total)


def run(a, b):
    M, K = a.shape
    N = b.shape[1]
    c = torch.empty((M, N), device=a.device, dtype=a.dtype)
    def grid(meta):
        return triton.cdiv(M, meta["BLOCK_M"]), triton.cdiv(N, meta["BLOCK_N"])

    matmul[grid](a, b, c, M, N, K, BLOCK_M=128, BLOCK_N=64, BLOCK_K=32, num_warps=8)
    return c
"""
AUTOTUNED = PRODUCT.replace(
    "@triton.jit",
    "@triton.autotune(configs=[triton.Config({'BLOCK_M': 64, 'BLOCK_N': 64, 'BLOCK_K': 32}, "
    "num_warps=4)], key=['M'])\n@triton.jit",
).replace("BLOCK_M=128, BLOCK_N=64, BLOCK_K=32, num_warps=8", "")


def test_knobs_are_the_tiles_of_the_launch_its_warps_and_stages():
    space = tile_space(PRODUCT, "matmul")
    assert [k.name for k in space.knobs] == ["BLOCK_M", "BLOCK_N", "BLOCK_K", "num_warps",
                                             "num_stages"]  # fmt: skip
    assert space.default == {"BLOCK_M": 128, "BLOCK_N": 64, "BLOCK_K": 32, "num_warps": 8,
                             "num_stages": 3}  # fmt: skip
    assert all(list(knob.values) == sorted(knob.values) for knob in space.knobs)


def test_values_are_written_into_the_launch_and_read_back():
    space = tile_space(PRODUCT)
    values = {"BLOCK_M": 256, "BLOCK_N": 128, "BLOCK_K": 64, "num_warps": 4, "num_stages": 2}
    changed = with_values(PRODUCT, values)
    assert "BLOCK_M=256, BLOCK_N=128, BLOCK_K=64, num_warps=4, num_stages=2" in changed
    assert tile_space(changed).default == values
    for point in space.points():
        compile(with_values(PRODUCT, point), "solution", "exec")
        break


def test_an_autotuned_kernel_is_left_one_configuration():
    space = tile_space(AUTOTUNED)
    values = {**space.default, "BLOCK_M": 256, "num_warps": 8}
    changed = with_values(AUTOTUNED, values)
    assert changed.count("triton.Config(") == 1
    assert "'BLOCK_M': 256" in changed and "num_warps=8" in changed


def test_standard_configurations_of_a_product_are_points_and_are_tried_first():
    """The table's first product tile; an expert's own proposals come after six of them."""
    space = tile_space(PRODUCT)
    first = {"BLOCK_M": 128, "BLOCK_N": 256, "BLOCK_K": 64, "num_warps": 8, "num_stages": 3}
    assert space.standard[0] == first and not any(map(space.faults, space.standard))
    assert len(space.standard) >= STANDARD


def test_what_launches_nothing_has_no_knobs():
    assert tile_space("def run(a):\n    return a\n") is None
    assert tile_space("def (") is None
