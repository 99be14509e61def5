"""Nothing makes instructions or bytes free."""

import dataclasses

import numpy as np
import pytest
from timing_kernels import BF16, F32, product, sums_at_once, timed

from accelopt.hardware import TRN1
from accelopt.sim.dialects.neuronxcc import compiler as ncc
from accelopt.sim.dialects.neuronxcc import isa as nisa
from accelopt.sim.dialects.neuronxcc import language as nl
from accelopt.sim.dialects.neuronxcc.kernel import trace_kernel
from accelopt.sim.errors import KernelError
from accelopt.sim.timing.machine.pricing import price
from accelopt.sim.timing.stream.operation import Operation, Queue
from accelopt.sim.trace import AbstractTensor

ROWS, WIDTH = 512, 2048


def masked_silu(x, conditions):
    """Conditions that all say the same: the last column of each tile is left out."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    p, f = nl.arange(128)[:, None], nl.arange(WIDTH)[None, :]
    for i in nl.affine_range(ROWS // 128):
        tile = nl.load(x[i * 128 + p, f])
        mask = f < WIDTH - 1
        for factor in nl.static_range(1, conditions):
            mask = mask & (f * factor < (WIDTH - 1) * factor + i)
        nl.store(out[i * 128 + p, f], nl.silu(tile, mask=mask))
    return out


def masked_maximum(x, first):
    """The largest of each row, of the columns from `first` on."""
    out = nl.ndarray((128, 1), dtype=x.dtype, buffer=nl.shared_hbm)
    p, f = nl.arange(128)[:, None], nl.arange(WIDTH)[None, :]
    tile = nl.load(x)
    nl.store(out, nisa.tensor_reduce(np.max, tile[p, f], axis=(1,), mask=f >= first))
    return out


def halves(x, same):
    """A tile loaded in two halves, of its partitions or twice the same."""
    out = nl.ndarray((2, 128, WIDTH), dtype=x.dtype, buffer=nl.shared_hbm)
    p, f = nl.arange(128)[:, None], nl.arange(WIDTH)[None, :]
    upper = nl.load(x[p, f], mask=p >= 64)
    lower = nl.load(x[p, f], mask=p >= 64 if same else p < 64)
    nl.store(out[0, p, f], nl.exp(upper))
    nl.store(out[1, p, f], nl.exp(lower))
    return out


def backwards(x):
    """All columns are loaded by themselves and read from the last to the first."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    p, f = nl.arange(128)[:, None], nl.arange(256)[None, :]
    tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    for j in range(WIDTH // 256):
        tile[p, j * 256 + f] = nl.load(x[p, j * 256 + f])
    whole = nl.arange(WIDTH)[None, :]
    nl.store(out, nl.exp(tile[p, WIDTH - 1 - whole]))
    return out


def converted(x, dtype):
    """Stored in another format by the DMA engine."""
    out = nl.ndarray(x.shape, dtype=dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.load(x))
    return out


def two_places(x, second):
    """Two tiles that the kernel places itself, both alive until the end."""
    out = nl.ndarray((2, 128, 512), dtype=x.dtype, buffer=nl.shared_hbm)
    tiles = []
    for i, address in enumerate((0, second)):
        tile = nl.ndarray(
            (128, 512), dtype=x.dtype, buffer=ncc.sbuf.alloc(lambda *_, at=address: (0, at))
        )
        tile[...] = nl.load(x[0:128, i * 512 : i * 512 + 512])
        tiles.append(tile)
    for i, tile in enumerate(tiles):
        nl.store(out[i], tile)
    return out


class TestMasks:
    def test_conditions_that_mean_one_cost_as_one(self):
        """A winner of a run took a quarter of the time by sixty conditions that mean one: issue 12,
        point 9."""
        one, sixty = (timed(masked_silu, (ROWS, WIDTH), n) for n in (1, 60))
        assert sixty.latency_ms == one.latency_ms

    def test_a_reduction_that_leaves_out_the_first_column_is_not_free(self):
        """The mask of a reduction is over what it reads, not over its result (isa: tensor_reduce)."""
        whole, most = (timed(masked_maximum, (128, WIDTH), first) for first in (0, 1))
        assert most.summary["vector_engine_instruction_count"] == 1
        for name in ("vector_engine_active_time", "latency"):
            assert most.summary[name] == pytest.approx(whole.summary[name], rel=1e-3)

    def test_loads_under_different_conditions_do_not_merge(self):
        """4 of 8 MiB were read: issue 12, point 10."""
        different, alike = (timed(halves, (128, WIDTH), same) for same in (False, True))
        assert different.summary["hbm_read_bytes"] == 2 * alike.summary["hbm_read_bytes"]


class TestBytes:
    def test_what_is_read_backwards_is_not_dead(self):
        """1 of 8 MiB was read: issue 12, point 10."""
        assert timed(backwards, (128, WIDTH)).summary["hbm_read_bytes"] == 128 * WIDTH * 4

    @pytest.mark.parametrize(("given", "stored"), [(F32, BF16), (BF16, F32)])
    def test_a_converting_transfer_moves_both_of_its_sides(self, given, stored):
        """Each side is read or written in its own format, and the wider one takes its time."""
        found = timed(converted, (128, WIDTH), stored, dtype=given)
        wide = timed(converted, (128, WIDTH), F32)
        assert found.summary["hbm_read_bytes"] == 128 * WIDTH * given.itemsize
        assert found.summary["hbm_write_bytes"] == 128 * WIDTH * stored.itemsize
        converting = max(cost.engine_ns for cost in found.run.costs if cost)
        assert converting >= max(cost.engine_ns for cost in wide.run.costs if cost)


class TestOperations:
    def test_integers_are_not_multiplied_faster_than_fp32(self):
        """isa: nc_matmul takes floating point numbers; int16 halved the time of the Tensor engine:
        issue 12, point 11."""
        tensors = [AbstractTensor((128, 128), F32), AbstractTensor((128, 512), F32)]
        program = trace_kernel(product, [*tensors, False])
        one = next(i for _, i in program.walk() if i.opcode == "matmul")

        def cost(dtype):
            reads = [
                dataclasses.replace(one.inputs[name], dtype=np.dtype(dtype))
                for name in ("stationary", "moving")
            ]
            operation = Operation(one.opcode, Queue.TENSOR, tuple(reads), (one.result,), one)
            return price(operation, TRN1).issue_ns

        assert cost(np.int16) == cost(np.int8) == cost(F32) > 2 * cost(BF16)

    def test_more_sums_than_psum_holds_cost_more(self):
        """matmul_v2_b16 (trn2_kda_measured.csv) accumulates sixteen banks in turn: 1.87 times the time
        of eight, with a fifth of it in copies out of PSUM."""
        eight, sixteen = (timed(sums_at_once, (8, 128, 128), (8, 128, 512), n) for n in (8, 16))
        assert not any(d.pass_name == "fit_psum" for d in eight.decisions)
        assert any(d.pass_name == "fit_psum" for d in sixteen.decisions)
        per_sum = [
            found.summary["tensor_engine_active_time"] / n
            for found, n in ((eight, 8), (sixteen, 16))
        ]
        assert per_sum[1] > 1.3 * per_sum[0]


class TestPlaces:
    @pytest.mark.parametrize("second", [2048, 65536])
    def test_tiles_apart_are_fine(self, second):
        timed(two_places, (128, 1024), second)

    @pytest.mark.parametrize("second", [0, 1024])
    def test_tiles_that_destroy_each_other_are_refused(self, second):
        """nki_direct_allocation_guide.rst: overlapping addresses "would cause errors if the two tensors
        need to be alive at the same time"."""
        with pytest.raises(KernelError, match="has been written since"):
            timed(two_places, (128, 1024), second)
