"""Kernels that the two cores of a logical core share (LNC 2).

Evidence, SDK 2.32: each core has engines, DMA engines, SBUF and PSUM of its own, and the two "share the
same HBM stack" (nki.isa.core_barrier, device-memory.rst), whose bandwidth is "the same" for one and
for two (Neuron Explorer's profile schema, mbu_estimated_percent). Four stacks have 2.9 TB/s
(trainium2_arch.rst), a core's sixteen DMA engines 435 GB/s (nki-dma-overview), so two cores cannot
move twice what one moves. What a barrier takes is assumed: nobody has published it.
"""

import json
import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from two_core_kernels import (
    ARRAY,
    DOCUMENTED,
    F32,
    SHARED,
    alone_us,
    net_us,
    of_rows,
    timed,
    traced,
)

from accelopt.hardware import TRN1, TRN2
from accelopt.report.kernel_summary import portrait
from accelopt.report.profile_text import profile_text
from accelopt.report.timeline import timeline_json
from accelopt.sim import compute
from accelopt.sim.errors import KernelValueError
from accelopt.sim.program import Loop
from accelopt.sim.timing import profile
from accelopt.sim.timing.gaps import engine_activity
from accelopt.sim.timing.occupancy import memory_use
from accelopt.sim.timing.what_if import what_ifs

BARRIER_US = 1.0  # more than one takes


@pytest.mark.parametrize("name", SHARED)
def test_two_cores_compute_what_one_does(name):
    body, arguments = SHARED[name]
    rng = np.random.default_rng(5)
    arrays = [rng.normal(size=shape).astype(dtype) for shape, dtype in arguments.values()]
    one, two = (compute.execute(traced(body, arguments, n), arrays)[0] for n in (1, 2))
    np.testing.assert_allclose(one, two, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("spec", [TRN2, DOCUMENTED], ids=["trn2", "documented rates"])
@pytest.mark.parametrize("name", SHARED)
def test_no_slower_than_one_core_and_no_faster_than_the_busier_half_alone(name, spec):
    """A bf16 product took 1.56 times less on two real cores (206.5 to 131.9 us); both load what they
    both need."""
    one, two = (timed(*SHARED[name], cores, spec) for cores in (1, 2))
    gain = net_us(one) / net_us(two)
    assert 1.05 < gain < 2.02
    if "depth" not in name:  # alone, each core would pay for what both send
        assert net_us(two) >= max(alone_us(two)) - 1e-6


def test_engines_halve_the_time_and_the_hbm_does_not():
    busy, idle = of_rows(times=24), of_rows(times=0)
    one, two = (timed(busy, ARRAY, cores, DOCUMENTED) for cores in (1, 2))
    assert net_us(one) / net_us(two) == pytest.approx(2, rel=0.12)
    large = {"x": ((4096, 2048), F32)}
    one, two = (timed(idle, large, cores, DOCUMENTED) for cores in (1, 2))
    moved = 2 * 4096 * 2048 * 4 / 716e3
    assert moved < net_us(two) < 1.1 * moved
    assert net_us(one) / net_us(two) == pytest.approx(716 / 435, rel=0.1)
    assert two.summary["mbu_estimated_percent"] > 0.8


def test_cores_that_do_nearly_the_same_are_told_together():
    """Shifted by nanoseconds they were told twice (issue 41); those that do something else are."""
    two = timed(of_rows(times=8), ARRAY, 2, DOCUMENTED)
    said = re.findall(r"(\w+) of cores 0, 1(?: \(.*? within (.*?)\))? [\d.]+ to", profile_text(two))
    ends = {(one.core, one.name): one.last_ms for one in engine_activity(two)}
    apart = {name: (abs(ends[0, name] - ends[1, name]), float(ms or 0)) for name, ms in said}
    assert apart["scalar"][1] > 0 and all(
        difference <= 1.05 * ms for difference, ms in apart.values()
    )
    assert "cores 0, 1" not in profile_text(timed(*SHARED["unequal numbers of rows"], 2))


def test_the_later_core_decides_and_the_launch_counts_once():
    two = timed(*SHARED["unequal numbers of rows"], 2)
    heavier, lighter = alone_us(two)
    assert heavier > 2 * lighter and net_us(two) == pytest.approx(heavier, rel=0.02)


@settings(max_examples=12)
@given(st.integers(1, 7), st.integers(0, 6), st.integers(0, 6))
def test_time_lies_between_the_longer_part_and_the_sum(first, many, few):
    """Sharing the HBM makes no core faster: each keeps the order in which it was compiled. (An engine that
    takes what is ready first ends sooner where something else comes late, Graham's anomaly.)"""
    rows = f"range({first} * me, {first} + {8 - first} * me)"
    body = of_rows(rows).replace("range(8)", f"range({few} if me else {many})")
    two = timed(body, ARRAY, 2)
    parts = alone_us(two)
    assert max(parts) - 1e-6 <= net_us(two) <= sum(parts) + 1e-6


WORK = """
    out = nl.ndarray((256, 512), dtype=x.dtype, buffer=nl.shared_hbm)
    t = nl.ndarray((128, 512), dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=t, src=x[0:128, 0:512])
    for _ in range({before}):
        nisa.activation(dst=t, op=nl.tanh, data=t)
    {meet}
    for _ in range({after}):
        nisa.activation(dst=t, op=nl.tanh, data=t)
    nisa.dma_copy(dst=out[nl.ds(me * 128, 128), :], src=t)
    return out
"""
THROUGH_HBM = """shared = nl.ndarray((256, 512), dtype=x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=shared[nl.ds(me * 128, 128), :], src=t)
    nisa.core_barrier(shared, (0, 1){engine})
    nisa.dma_copy(dst=t, src=shared[nl.ds(128 - me * 128, 128), :])"""
BY_EXCHANGE = """u = nl.ndarray((128, 512), dtype=x.dtype, buffer=nl.sbuf)
    nisa.sendrecv(src=t, dst=u, send_to_rank=1 - me, recv_from_rank=1 - me, pipe_id=0)
    t = u"""


@pytest.mark.parametrize("meet", [THROUGH_HBM.format(engine=""), BY_EXCHANGE], ids=["hbm", "tile"])
def test_both_wait_for_the_later_one(meet):
    """nki.isa.core_barrier: all cores "must reach before any can proceed"; sendrecv begins with one."""
    long, short = "100 if me == 0 else 1", "1 if me == 0 else 100"
    apart, crossed = (
        timed(WORK.format(before=long, after=after, meet=meet), ARRAY, 2) for after in (long, short)
    )
    assert net_us(apart) > 1.8 * max(net_us(timed(WORK.format(before=long, after=1, meet="pass"),
                                                  ARRAY, 2)), 1)  # fmt: skip
    assert net_us(crossed) == pytest.approx(net_us(apart), rel=0.02)
    free = timed(WORK.format(before=long, after=short, meet="pass"), ARRAY, 2)
    assert net_us(free) < 0.6 * net_us(crossed)


def test_a_barrier_takes_a_round_of_semaphores():
    """Assumed: an engine's shortest instruction and its latency to tell, another to wait."""
    barriers = "for _ in range({}):\n        nisa.core_barrier(out, (0, 1))"
    few, many = (
        net_us(timed(WORK.format(before=1, after=1, meet=barriers.format(n)), ARRAY, 2))
        for n in (100, 200)
    )
    assert 0.05 * 100 < many - few < BARRIER_US * 100


def test_a_barrier_is_its_engine_s():
    """The `engine` parameter "allows specifying which engine inside the NeuronCores should execute the
    barrier instruction"."""
    body = WORK.format(before=1, after=1, meet=THROUGH_HBM)
    named = body.replace("{engine}", ", engine=nisa.engine.vector")
    default, vector = (timed(b, ARRAY, 2) for b in (body.replace("{engine}", ""), named))
    for found, busy, idle in ((default, "gpsimd", "vector"), (vector, "vector", "gpsimd")):
        assert all(one[busy] > 0 and one[idle] == 0 for one in found.occupancy_by_core)


def test_an_exchange_takes_its_bytes():
    """Between SBUFs: nothing of it counts as read or written in HBM."""
    wide = BY_EXCHANGE.replace("128, 512", "128, 8192").replace("src=t", "src=w")
    wide = "w = nl.ndarray((128, 8192), dtype=x.dtype, buffer=nl.sbuf)\n    " \
        "nisa.memset(dst=w, value=1.0)\n    " + wide.replace("t = u", "nisa.tensor_copy(dst=t, src=u[:, 0:512])")  # fmt: skip
    found, small = (
        timed(WORK.format(before=1, after=1, meet=meet), ARRAY, 2) for meet in (wide, BY_EXCHANGE)
    )
    ns = (128 * (8192 - 512) * 4) / TRN2.dma_peak_bytes_per_ns
    assert net_us(found) - net_us(small) > ns * 1e-3
    assert found.summary["hbm_read_bytes"] == small.summary["hbm_read_bytes"] == 2 * 128 * 512 * 4
    assert found.summary["sbuf_write_bytes"] > small.summary["sbuf_write_bytes"]


HOLD = """
    out = nl.ndarray((256, 512), dtype=x.dtype, buffer=nl.shared_hbm)
    tiles = []
    for n in range({count}):
        t = nl.ndarray((128, 2048), dtype=x.dtype, buffer=nl.sbuf)
        nisa.memset(dst=t, value=float(n))
        tiles.append(t)
    s = nl.ndarray((128, 2048), dtype=x.dtype, buffer=nl.sbuf)
    nisa.memset(dst=s, value=0.0)
    for t in tiles:
        nisa.tensor_tensor(dst=s, data1=s, data2=t, op=nl.add)
    nisa.dma_copy(dst=out[nl.ds(me * 128, 128), :], src=s[:, 0:512])
    return out
"""


def test_each_core_has_its_own_sbuf():
    both = timed(HOLD.format(count="20"), ARRAY, 2)  # 160 KiB of 208 each
    assert not both.spills
    uses = {use.memory: use for use in memory_use(both.run.program)}
    assert list(uses) == ["SBUF of core 0", "PSUM of core 0", "SBUF of core 1", "PSUM of core 1"]
    assert uses["SBUF of core 0"].peak == uses["SBUF of core 1"].peak <= 176 * 1024
    first, one = (timed(HOLD.format(count=count), ARRAY, cores)
                  for count, cores in (("20 if me else 40", 2), ("40", 1)))  # fmt: skip
    assert [s.saved for s in first.spills] == [s.saved for s in one.spills]
    assert first.spills


READ_AGAIN = """
    out = nl.ndarray((256, 512), dtype=x.dtype, buffer=nl.shared_hbm)
    part = nl.ndarray((256, 512), dtype=x.dtype, buffer=nl.shared_hbm)
    mine, other = nl.ds(me * 128, 128), nl.ds(128 - me * 128, 128)
    s = nl.ndarray((128, 512), dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=s, src=x[0:128, 0:512])
    for n in range({count}):
        nisa.activation(dst=s, op=nl.tanh, data=s)
        nisa.dma_copy(dst=part[mine, :], src=s)
        nisa.core_barrier(part, (0, 1))
        t = nl.ndarray((128, 512), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=t, src=part[other, :])
        nisa.core_barrier(part, (0, 1))
        nisa.tensor_tensor(dst=s, data1=s, data2=t, op=nl.add)
    nisa.dma_copy(dst=out[mine, :], src=s)
    return out
"""


def test_what_the_other_core_has_written_anew_is_read_anew():
    found = timed(READ_AGAIN.format(count=5), ARRAY, 2)
    assert found.summary["hbm_read_bytes"] == 2 * (5 + 1) * 128 * 512 * 4


def test_profile_and_trace_show_both_cores():
    found = timed(*SHARED["unequal numbers of rows"], 2)
    first, second = found.occupancy_by_core
    assert first["scalar"] > 2 * second["scalar"] > 0
    for name, share in found.occupancy.items():
        assert share == pytest.approx((first[name] + second[name]) / 2)
    slowest = next(bound for bound in found.bounds if bound.aspect == "pipeline")
    assert slowest.ms == pytest.approx(first["scalar"] * found.latency_ms)
    busy = portrait(found).busy
    assert len(busy) == 10 and sum(busy["scalar 0"]) > 2 * sum(busy["scalar 1"]) > 0
    text = profile_text(found)
    words = " ".join(text.split())
    for core, shares in enumerate((first, second)):
        busy_ms = shares["scalar"] * found.latency_ms
        assert f"core {core}: scalar {busy_ms:.4f} ms ({shares['scalar']:.0%}), dma " in words
    assert "SBUF of core 1" in text
    events = json.loads(timeline_json(found))["traceEvents"]
    names = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert sorted(names.values()) == [
        "DMA queues of core 0", "DMA queues of core 1", "critical path", "engines of core 0",
        "engines of core 1", "memory",
    ]  # fmt: skip
    labelled = [e for e in events if e["ph"] == "X" and e["pid"] % 10 == 1]
    assert {names[e["pid"]] for e in labelled} == {"engines of core 0", "engines of core 1"}


def test_without_the_busier_core_s_engine_the_rest_decides():
    found = timed(*SHARED["unequal numbers of rows"], 2)
    asked = {one.name: one.latency_ms for one in what_ifs(found) if one.subject == "engine"}
    assert asked["scalar"] < 0.7 * found.latency_ms
    nothing = {one.question: one.latency_ms for one in what_ifs(found)}
    assert (
        nothing["nothing waits for anything else"]
        >= max(one["scalar"] for one in found.occupancy_by_core) * found.latency_ms
    )


def test_loops_in_which_cores_do_not_meet_stay_loops():
    """So that one core and two are compiled from the same form."""
    program = traced(*SHARED["a product by rows"], 2)
    loops = [node for node in program.body if isinstance(node, Loop)]
    assert {i.core for _, i in program.walk()} == {0, 1} and len(loops) == 4


def test_where_there_are_no_logical_cores_programs_run_one_after_the_other():
    """trn1 has none ("lnc=2 not supported on trn1", EARG001)."""
    program = traced(*SHARED["rows"], 2, "trn1")
    found, one = profile(program, TRN1), timed(*SHARED["rows"], 1, TRN1)
    assert found.run.stream.cores == len(found.occupancy_by_core) == 1
    assert found.latency_ms == pytest.approx(one.latency_ms, rel=0.1)


def test_a_program_whose_cores_use_one_tile_has_no_time():
    program = traced(WORK.format(before=1, after=1, meet="pass"), ARRAY)
    assert len(program.body) == 4
    body = tuple(replace(node, core=n % 2) for n, node in enumerate(program.body[::-1]))[::-1]
    with pytest.raises(KernelValueError, match="both use the tile"):
        profile(replace(program, body=body))
