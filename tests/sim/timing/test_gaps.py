"""When engines begin, end and stand still.

Evidence: none is a measurement; the gaps follow from the schedule, so the test holds them to what must be
true of any schedule, and to the same busy times that the counters have.
"""

import numpy as np
import pytest
from kernel_heads import nki_kernel
from timing_kernels import timed

from accelopt.hardware import TARGETS
from accelopt.sim.dialects.dialect import trace_kernel as trace_by_dialect
from accelopt.sim.dialects.neuronxcc import isa as nisa
from accelopt.sim.dialects.neuronxcc import language as nl
from accelopt.sim.kernel_loading import load
from accelopt.sim.timing import profile
from accelopt.sim.timing.gaps import engine_activity


def in_turns(x):
    """Loads, one Scalar and one Vector instruction, all in one tile that is used again."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for i in nl.sequential_range(x.shape[0]):
        t = nl.load(x[i, 0:128, 0:2048])
        nl.store(out[i, 0:128, 0:2048], nisa.reciprocal(nl.exp(t)))
    return out


@pytest.fixture(scope="module")
def found():
    return timed(in_turns, (12, 128, 2048))


def test_work_and_gaps_fill_the_time_of_each_engine(found):
    every = engine_activity(found, longest=10_000)
    assert {one.name for one in every} == {"vector", "scalar", "dma"}
    for one in every:
        assert one.gaps == len(one.longest)
        idle = sum(gap.ms for gap in one.longest)
        assert one.busy_ms + idle == pytest.approx(one.last_ms - one.first_ms)
        assert one.busy_ms / found.latency_ms == pytest.approx(found.occupancy[one.name])
        assert 0 <= one.first_ms < one.last_ms <= found.latency_ms - found.run.spec.launch_ns * 1e-6


def test_the_longest_come_first_and_name_what_they_waited_for(found):
    [vector] = [one for one in engine_activity(found) if one.name == "vector"]
    lengths = [gap.ms for gap in vector.longest]
    assert len(lengths) == 5 and lengths == pytest.approx(sorted(lengths, reverse=True))
    for gap in vector.longest:  # the reciprocal waits for the exponential of its own tile
        assert (gap.waited, gap.engine, gap.behind) == ("result", "scalar", gap.source)


def test_what_nothing_held_is_said_to_be_unknown(found):
    every = [gap for one in engine_activity(found, longest=10_000) for gap in one.longest]
    run = found.run
    sources = [run.stream.instances[kind].operation.source for kind in run.stream.kind]
    for gap in every:
        ends = [
            ns * 1e-6 for ns, at in zip(run.timeline.done, sources, strict=True) if at == gap.behind
        ]
        within = [end for end in ends if gap.start_ms <= end <= gap.end_ms]
        assert gap.behind is None or within  # what it waited for ended in it
        assert (gap.behind is None) == (gap.waited == "unknown")


def on_two_engines(x):
    """Two chains of instructions on one tile, one of Vector and one of GpSimd."""
    out = nl.ndarray((2, *x.shape), dtype=x.dtype, buffer=nl.shared_hbm)
    ends = [nl.load(x), nl.load(x)]
    for _ in nl.static_range(8):
        for n, engine in enumerate((nisa.vector_engine, nisa.gpsimd_engine)):
            ends[n] = nisa.tensor_scalar(ends[n], nl.multiply, 2.0 + n, engine=engine)
    for n, end in enumerate(ends):
        nl.store(out[n], end)
    return out


@pytest.mark.parametrize(("target", "shared"), [("trn1", {"vector", "gpsimd"}), ("trn2", set())])
def test_engines_that_share_a_port_of_memory_wait_for_it(target, shared):
    every = engine_activity(timed(on_two_engines, (128, 2048), target=target), longest=10_000)
    ports = {(one.name, gap.engine) for one in every for gap in one.longest if gap.waited == "port"}
    assert {name for pair in ports for name in pair} == shared
    assert all(name != engine for name, engine in ports)


CHUNKS = nki_kernel("""def kernel(x):
    out = nl.ndarray((128, 512), dtype=x.dtype, buffer=nl.shared_hbm)
    sums = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.psum)
    for i in range(8):
        t = nl.ndarray((128, 512), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=t, src=x[i * 128:(i + 1) * 128, :])
        for _ in range(6):
            nisa.activation(dst=t, op=nl.exp, data=t)
        for c in range(4):
            nisa.nc_matmul(dst=sums, stationary=t[:, c * 128:(c + 1) * 128], moving=t, accumulate=i + c > 0)
    nl.store(out, nl.copy(sums))
    return out
""")


def test_loads_that_come_in_time_are_said_to():
    """For the product that wants them, which the compiler does not know to come late."""
    x = np.zeros((1024, 512), np.float32)
    program = trace_by_dialect(load(CHUNKS, "k.py").kernel, [x], target="trn2")
    found = profile(program, TARGETS["trn2"])
    [dma] = [one for one in engine_activity(found) if one.name == "dma"]
    timed = [gap for gap in dma.longest if gap.waited == "timed"]
    assert timed and {gap.engine for gap in timed} == {"tensor"}
