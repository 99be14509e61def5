"""What-ifs, prices and memory over time: what a planner is told beyond the latency.

Evidence: none of these is a measurement; they follow from the schedule, so the tests hold them to
what must be true of any schedule, and to arithmetic that can be done by hand.
"""

import sys

import pytest
from timing_kernels import timed

from accelopt.sim.dialects.neuronxcc import isa as nisa
from accelopt.sim.dialects.neuronxcc import language as nl
from accelopt.sim.timing.account.explanation import critical_path, critical_steps
from accelopt.sim.timing.instruction_costs import bill
from accelopt.sim.timing.occupancy import memory_use
from accelopt.sim.timing.what_if import what_ifs, without_engines

COUNT, WIDTH = 24, 2048


def heavy_on_vector(x):
    """Six Vector instructions on every tile that is loaded."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(x.shape[0]):
        t = nl.load(x[i, 0:128, 0:WIDTH])
        t = nisa.reciprocal(nisa.reciprocal(nisa.reciprocal(t)))
        t = nisa.reciprocal(nisa.reciprocal(nisa.reciprocal(t)))
        nl.store(out[i, 0:128, 0:WIDTH], t)
    return out


def crowded(x):
    """Keeps everything it makes, for it is stored backwards: SBUF holds 22 such tiles."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    made = nl.ndarray((x.shape[0], nl.par_dim(128), WIDTH), dtype=x.dtype, buffer=nl.sbuf)
    for i in nl.affine_range(x.shape[0]):
        made[i, 0:128, 0:WIDTH] = nl.exp(nl.load(x[i, 0:128, 0:WIDTH]))
    for i in nl.affine_range(x.shape[0]):
        nl.store(out[i, 0:128, 0:WIDTH], nisa.reciprocal(made[x.shape[0] - 1 - i, 0:128, 0:WIDTH]))
    return out


def profiled(kernel, count=COUNT):
    return timed(kernel, (count, 128, WIDTH))


@pytest.fixture(scope="module")
def vector():
    return profiled(heavy_on_vector)


def named(found, subject, name=""):
    return next(w for w in what_ifs(found) if w.subject == subject and w.name == name)


def test_the_engine_that_limits_is_the_one_whose_absence_pays_most(vector):
    answers = {w.name: w.latency_ms for w in what_ifs(vector) if w.subject == "engine"}
    assert min(answers, key=answers.get) == "vector"
    assert answers["vector"] < 0.5 * vector.latency_ms
    assert answers["dma"] > 0.9 * vector.latency_ms
    assert all(ms <= vector.latency_ms * 1.001 for ms in answers.values())


def test_half_of_a_line_that_is_half_of_the_work_is_a_quarter_of_the_time(vector):
    line = next(w for w in what_ifs(vector) if w.subject == "line")
    assert line.source == vector.lines[0].source
    assert "reciprocal" in vector.lines[0].operations
    assert line.latency_ms == pytest.approx(vector.latency_ms * 3 / 4, rel=0.1)


def test_asking_changes_nothing(vector):
    before = vector.latency_ms, list(vector.run.timeline.start)
    what_ifs(vector)
    assert (vector.latency_ms, list(vector.run.timeline.start)) == before
    assert profiled(heavy_on_vector).latency_ms == vector.latency_ms


def test_more_sbuf_helps_a_kernel_that_spills_and_is_not_asked_of_one_that_fits():
    found = profiled(crowded, 60)
    assert found.spills
    assert named(found, "sbuf").latency_ms < 0.95 * found.latency_ms
    assert not [w for w in what_ifs(timed(copied, (128, 64))) if w.subject == "sbuf"]


def copied(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.load(x))
    return out


def test_waiting_is_a_part_of_the_critical_path(vector):
    steps = critical_steps(vector.run.timeline)
    assert [(s.instance, s.ns) for s in steps] == critical_path(vector.run.timeline)
    assert all(0 <= s.waiting_ns <= s.ns for s in steps)
    assert all(0 <= line.waiting_ms <= line.critical_ms + 1e-12 for line in vector.lines)


def test_prices_are_the_formulas_and_add_up_to_what_the_engines_do(vector):
    rows = bill(vector)
    reciprocal, same = [row for row in rows if row.instruction == "reciprocal"]
    assert reciprocal.source.line == same.source.line - 1 and reciprocal.cycles == same.cycles
    spec = vector.run.spec
    assert (reciprocal.engine, reciprocal.count) == ("vector", 3 * COUNT)
    assert (reciprocal.partitions, reciprocal.elements) == (128, WIDTH)
    cycles = spec.reciprocal_cycles_per_element * WIDTH + spec.vector_access_cycles
    assert reciprocal.cycles == pytest.approx(cycles)
    assert reciprocal.busy_ms == pytest.approx(3 * COUNT * cycles / spec.vector_ghz * 1e-6)
    transfers = [row for row in rows if row.engine == "dma"]
    assert sum(row.bytes for row in transfers) == 2 * COUNT * 128 * WIDTH * 4
    assert {row.piece for row in transfers} == {WIDTH * 4}
    assert sum(row.count for row in rows) == len(vector.run.stream)
    assert rows == sorted(rows, key=lambda row: -row.busy_ms)


def on_lanes(count):
    """A kernel that works on `count` lanes of 128."""

    def kernel(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        for i in nl.affine_range(x.shape[0]):
            for part in nl.affine_range(128 // count):
                p, f = nl.mgrid[0:count, 0:WIDTH]
                t = nisa.reciprocal(nisa.reciprocal(nl.load(x[i, part * count + p, f])))
                nl.store(out[i, part * count + p, f], t)
        return out

    return kernel


def test_partitions_that_could_be_filled_are_asked_about():
    few, full = profiled(on_lanes(16), 4), profiled(on_lanes(128), 4)
    filled = named(few, "lanes")
    assert full.latency_ms * 0.8 < filled.latency_ms < few.latency_ms / 3
    assert "lanes" not in {one.subject for one in what_ifs(full)}


def looks_at_queues(work):
    """How often an engine looks for an instruction to start while `work` is done."""
    looks = 0

    def count(frame, event, _):
        nonlocal looks
        looks += event == "call" and frame.f_code.co_name == "_instruction"

    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return looks


def both(x):
    """Two engines that hand a tile to and fro, with many instructions ready before their time."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(x.shape[0]):
        for j in nl.affine_range(4):
            t = nl.load(x[i, 0:128, nl.ds(j * 512, 512)])
            root = nl.sqrt(nl.exp(t))
            s = nl.add(nl.multiply(root, nl.add(t, 1.0)), nl.exp(t))
            nl.store(out[i, 0:128, nl.ds(j * 512, 512)], nl.tanh(s))
    return out


def test_an_engine_without_work_is_not_woken_again_and_again():
    """Where instructions take no time, each wake-up asked for another one at the same moment: a what-if
    of a matrix product took minutes."""
    found = profiled(both)
    instances = len(found.run.stream.kind)
    questions = len(without_engines(found))
    assert looks_at_queues(lambda: without_engines(found)) < 4 * questions * instances


def test_memory_over_time_has_a_peak_and_its_holders():
    sbuf, psum = memory_use(profiled(crowded).run.program)
    assert (sbuf.memory, psum.memory, psum.peak) == ("SBUF", "PSUM", 0)
    assert sbuf.peak >= COUNT * WIDTH * 4
    assert sum(holder.bytes for holder in sbuf.holders) == sbuf.peak
