"""Kernels that differ in one edit, on an engine that is their bottleneck: by what factor the edit must
pay, as the vendor's documents have it (isa, arch guide, trainium2_arch.rst)."""

import numpy as np
import pytest
from timing_kernels import F32, busy_ns, timed

from accelopt.hardware import TARGETS
from accelopt.sim.dialects.neuronxcc import isa as nisa
from accelopt.sim.dialects.neuronxcc import language as nl

SHAPE = (512, 2048)
ROUNDS = 32


def sums(x, dtype, engine):
    """A chain of additions of two tiles of a format, on an engine."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(x.shape[0] // 128):
        tile = nl.load(x[i * 128 : (i + 1) * 128, :], dtype=dtype)
        total = nl.copy(tile)
        for _ in nl.static_range(ROUNDS):
            total = nisa.tensor_tensor(total, tile, np.add, engine=engine)
        nl.store(out[i * 128 : (i + 1) * 128, :], total)
    return out


def clipped(x, dtype):
    """A chain of products and maxima of one tile of a format."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(x.shape[0] // 128):
        tile = nl.load(x[i * 128 : (i + 1) * 128, :], dtype=dtype)
        for _ in nl.static_range(ROUNDS):
            tile = nisa.tensor_scalar(
                tile, np.multiply, 0.5, op1=np.maximum, operand1=0.1, engine=nisa.vector_engine
            )
        nl.store(out[i * 128 : (i + 1) * 128, :], tile)
    return out


def over_partitions(x, by_product):
    """Sums over partitions: by the GpSimd engine, or as products with ones."""
    out = nl.ndarray((16, 512), dtype=x.dtype, buffer=nl.shared_hbm)
    ones = nl.ones((128, 1), dtype=nl.float32, buffer=nl.sbuf)
    for i in nl.affine_range(16):
        tile = nl.load(x[:, i * 128 : i * 128 + 512])
        if by_product:
            nl.store(out[i : i + 1, :], nl.copy(nisa.nc_matmul(ones, tile)))
        else:
            nl.store(out[i : i + 1, :], nisa.tensor_partition_reduce(np.add, tile))
    return out


def copied(x, directly):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(x.shape[0] // 128):
        if directly:
            nisa.dma_copy(dst=out[i * 128 : (i + 1) * 128, :], src=x[i * 128 : (i + 1) * 128, :])
        else:
            nl.store(out[i * 128 : (i + 1) * 128, :], nl.load(x[i * 128 : (i + 1) * 128, :]))
    return out


def ratios(x, by_reciprocal):
    """A chain of quotients of two tiles, or of products with a reciprocal."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(x.shape[0] // 128):
        tile = nl.load(x[i * 128 : (i + 1) * 128, :])
        ratio = tile
        for _ in nl.static_range(ROUNDS):
            below = nl.add(ratio, 1.0)
            if by_reciprocal:
                ratio = nl.multiply(tile, nisa.reciprocal(below))
            else:
                ratio = nl.divide(tile, below)
        nl.store(out[i * 128 : (i + 1) * 128, :], ratio)
    return out


def middle_sums(x, permuted):
    """Sums over the middle axis of a tile, as it lies or through a view that has that axis last."""
    out = nl.ndarray((x.shape[0], 64), dtype=x.dtype, buffer=nl.shared_hbm)
    p, b, a = (
        nl.arange(128)[:, None, None],
        nl.arange(64)[None, :, None],
        nl.arange(32)[None, None, :],
    )
    for i in nl.affine_range(x.shape[0] // 128):
        tile = nl.load(x[i * 128 : (i + 1) * 128, :]).reshape((128, 32, 64))
        most = nl.zeros((128, 64), dtype=nl.float32, buffer=nl.sbuf)
        for k in nl.static_range(8):
            moved = nl.add(tile, 1.0 * k)
            total = nl.sum(moved[p, a, b], axis=[2]) if permuted else nl.sum(moved, axis=[1])
            most[...] = nl.maximum(most, total)
        nl.store(out[i * 128 : (i + 1) * 128, :], most)
    return out


def pieces(x, at_run_time):
    """A tile, copied in sixteen pieces whose places are numbers or are read from SBUF."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    p, f = nl.arange(128)[:, None], nl.arange(128)[None, :]
    places = nisa.iota(128 * nl.arange(16)[None, :] + 0 * p, dtype=nl.int32)
    for i in nl.affine_range(x.shape[0] // 128):
        tile = nl.load(x[i * 128 : (i + 1) * 128, :])
        copy = nl.ndarray((128, x.shape[1]), dtype=x.dtype, buffer=nl.sbuf)
        for j in nl.static_range(16):
            if at_run_time:
                piece = nisa.tensor_copy_dynamic_src(
                    tile[p, places[0:1, j : j + 1] + f], engine=nisa.vector_engine
                )
            else:
                piece = nisa.tensor_copy(tile[p, 128 * j + f], engine=nisa.vector_engine)
            copy[p, 128 * j + f] = piece
        nl.store(out[i * 128 : (i + 1) * 128, :], copy)
    return out


def _gain(kernel, shape, slow, fast, target) -> float:
    before, after = (timed(kernel, shape, *options, target=target) for options in (slow, fast))
    return before.latency_ms / after.latency_ms


VECTOR, GPSIMD = nisa.vector_engine, nisa.gpsimd_engine
EDITS = (
    (sums, (nl.float32, VECTOR), (nl.bfloat16, VECTOR), "trn1", 1.7, 2.1),  # isa: 2N to N
    (sums, (nl.float32, VECTOR), (nl.bfloat16, VECTOR), "trn2", 1.7, 2.1),  # trn2 guide: twofold
    (clipped, (nl.float32,), (nl.bfloat16,), "trn2", 1.5, 2.1),  # trn2 guide: 512 for 256
    (clipped, (nl.float32,), (nl.bfloat16,), "trn1", 0.95, 1.05),  # isa: N either way
    (sums, (nl.float32, GPSIMD), (nl.float32, VECTOR), "trn1", 1.0, 2.0),  # arch guide
    (sums, (nl.float32, GPSIMD), (nl.float32, VECTOR), "trn2", 1.0, 2.0),
)


@pytest.mark.parametrize(
    "kernel, slow, fast, target, least, most", EDITS, ids=lambda v: getattr(v, "__name__", None)
)
def test_an_edit_pays_what_the_documents_say(kernel, slow, fast, target, least, most):
    assert least <= _gain(kernel, SHAPE, slow, fast, target) <= most


@pytest.mark.parametrize("target", ["trn1", "trn2"])
def test_a_reduction_walks_the_axis_that_it_reduces(target):
    """arch guide: elements 256 bytes apart come at half the rate, however the source says so."""
    assert _gain(middle_sums, SHAPE, (True,), (False,), target) == pytest.approx(1, abs=0.01)


@pytest.mark.parametrize("target", ["trn1", "trn2"])
def test_a_quotient_saves_no_more_than_the_product(target):
    """silu and adamw (NKIBench): what a reciprocal takes; a divider would be its instruction too."""
    spec = TARGETS[target]
    most = 1.1 + spec.two_input_cycles_per_element / spec.reciprocal_cycles_per_element
    assert 1 < _gain(ratios, SHAPE, (True,), (False,), target) < most


@pytest.mark.parametrize("target", ["trn1", "trn2"])
def test_a_copy_whose_place_is_read_at_run_time_takes_600_cycles(target):
    """isa: MIN_II_DYNAMIC of tensor_copy_dynamic_src; 128 elements else take no more than 200."""
    by_address = [timed(pieces, SHAPE, dynamic, target=target) for dynamic in (False, True)]
    fixed, dynamic = (busy_ns(one, "vector") for one in by_address)
    copies = 16 * SHAPE[0] // 128
    ghz = TARGETS[target].vector_ghz
    assert dynamic - fixed >= copies * (600 - 200) / ghz
    assert _gain(pieces, SHAPE, (True,), (False,), target) > 1.2


@pytest.mark.parametrize("target", ["trn1", "trn2"])
def test_the_tensor_engine_sums_over_partitions_faster(target):
    """arch guide: cross-partition accumulation is the Tensor engine's; GpSimd adds 16 lanes up."""
    assert _gain(over_partitions, (128, 2560), (False,), (True,), target) > 1.1


@pytest.mark.parametrize("target", ["trn1", "trn2"])
def test_bytes_copied_within_hbm_pass_the_engines_once_and_hbm_twice(target):
    """nki-dma-overview: an engine reads what it writes; HBM has its own bandwidth (arch guide)."""
    spec = TARGETS[target]
    through, directly = (timed(copied, SHAPE, way, target=target) for way in (False, True))
    assert directly.latency_ms <= through.latency_ms
    moved = 2 * np.prod(SHAPE) * F32.itemsize
    assert directly.summary["hbm_read_bytes"] + directly.summary["hbm_write_bytes"] == moved
    assert directly.latency_ms * 1e6 - spec.launch_ns >= moved / spec.hbm_bytes_per_ns
