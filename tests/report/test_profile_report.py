"""What `accelopt profile` and `accelopt timeline` show of a kernel."""

import json
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

from accelopt.hardware import TARGETS
from accelopt.report.profile_text import profile_text
from accelopt.report.timeline import DMA_QUEUES, ENGINES, PATH, timeline_json
from accelopt.sim.dialects.neuronxcc import isa as nisa
from accelopt.sim.dialects.neuronxcc import language as nl
from accelopt.sim.dialects.neuronxcc.kernel import trace_kernel
from accelopt.sim.timing import interval, profile
from accelopt.sim.trace import AbstractTensor
from tests.sim.timing.timing_kernels import timed


def crowded(x, y):
    """Spills, repeats a load, and keeps the Vector engine busy."""
    count, rows, width = x.shape
    out = nl.ndarray((count, rows, width), dtype=x.dtype, buffer=nl.shared_hbm)
    made = nl.ndarray((count, nl.par_dim(rows), width), dtype=x.dtype, buffer=nl.sbuf)
    for i in nl.affine_range(count):
        shift = nl.load(y)
        made[i, 0:rows, 0:width] = nisa.tensor_tensor(nl.load(x[i, 0:rows, 0:width]), shift, nl.add)
    for i in nl.affine_range(count):
        nl.store(out[i, 0:rows, 0:width], nisa.reciprocal(made[count - 1 - i, 0:rows, 0:width]))
    return out


@pytest.fixture(scope="module")
def found():
    return timed(crowded, (30, 128, 2048), (128, 2048))


def test_text_explains_the_kernel(found):
    text = profile_text(found, interval(found))
    assert all(len(line) <= 100 for line in text.splitlines())
    text = " ".join(text.split())
    assert f"{found.latency_ms:.4g} ms, simulated trn1, SDK 2.21 front end (calibrated" in text
    for heading in (
        "of bound",
        "At work",
        "change first",
        "source lines",
        "what the compiler",
        "profiler",
    ):
        assert heading in text
    assert "nl.load(x[i, 0:rows, 0:width]), shift, nl.add" in text
    assert "made (line " in text and "is spilled:" in text
    assert "unresolved" in text and "eight would measure between" in text
    assert "hbm_read_bytes" in text


def test_critical_path_is_the_latency(found):
    total = sum(line.critical_ms for line in found.lines)
    launch = found.run.spec.launch_ns * 1e-6
    assert total == pytest.approx(found.latency_ms - launch, rel=0.05)


def test_bounds_lie_below_the_latency(found):
    assert {bound.aspect for bound in found.bounds} == {
        "memory", "compute", "pipeline", "overhead",
    }  # fmt: skip
    assert all(0 <= bound.ms <= found.latency_ms * 1.0001 for bound in found.bounds)
    by_name = {bound.name: bound.ms for bound in found.bounds}
    assert by_name["at peak bandwidth"] <= by_name["actual"]


def test_spills_and_repeats_are_named(found):
    line = Path(__file__).read_text().splitlines()[found.spills[0].source.line - 1]
    assert line.strip().startswith("made = ")
    assert sum(s.saved for s in found.spills) == found.summary["spill_save_bytes"]
    assert any(d.pass_name == "merge_repeated" and d.count == 29 for d in found.decisions)


def test_interval_holds_the_prediction(found):
    between = interval(found)
    assert between.low_ms <= found.latency_ms <= between.high_ms
    assert between.scenarios


def spans_of(events, process):
    return [event for event in events if event["ph"] == "X" and event["pid"] == process]


def test_timeline_is_a_trace_that_perfetto_opens(found):
    document = json.loads(timeline_json(found))
    events = document["traceEvents"]
    spans = spans_of(events, ENGINES) + spans_of(events, DMA_QUEUES)
    assert len(spans) == len(found.run.stream)
    tracks = {(e["pid"], e["tid"]) for e in events if e["name"] == "thread_name"}
    assert {(event["pid"], event["tid"]) for event in events if event["ph"] in "Xsf"} <= tracks
    assert all(event["dur"] >= 0 and event["ts"] >= 0 for event in spans)
    load = next(event for event in spans if event["name"] == "dma_copy")
    assert load["args"]["bytes"] == 128 * 2048 * 4
    assert load["args"]["source"].rpartition(":")[0] == __file__
    assert "nl.load" in load["args"]["text"]
    assert any("made[128, 2048] float32" in event["args"]["writes"] for event in spans)
    last = max(event["ts"] + event["dur"] for event in spans)
    assert last * 1e-3 <= document["otherData"]["latency_ms"]
    assert document["otherData"]["compiler"] == "2.21"


class PerfettoImport:
    """What Perfetto's importer makes of a JSON trace: times in whole ns by cutting the double
    (`json_utils.cc`, CoerceToTs), events in the order of their times, a stack of open slices for each
    track; a slice that overlaps an open one without lying in it is dropped (`slice_tracker.cc`), an
    arrow binds to the slice that is open."""

    def __init__(self, text):
        events = json.loads(text, parse_constant=pytest.fail)["traceEvents"]
        self.threads = {(e["pid"], e["tid"]) for e in events if e["name"] == "thread_name"}
        self.processes = {e["pid"] for e in events if e["name"] == "process_name"}
        self.dropped, self.unbound, self.flows, self.slices = [], [], {}, 0
        self.stacks = defaultdict(list)
        timed = [event for event in events if event["ph"] != "M"]
        for event in sorted(timed, key=lambda event: self.ns(event["ts"])):
            assert event["name"] and self.ns(event["ts"]) >= 0
            self.take(event, (event["pid"], event["tid"]))

    @staticmethod
    def ns(microseconds):
        return int(microseconds * 1000.0)

    def take(self, event, track):
        if event["ph"] == "C":
            assert event["pid"] in self.processes
            assert all(isinstance(value, int | float) for value in event["args"].values())
            return
        assert track in self.threads
        stack, at = self.stacks[track], self.ns(event["ts"])
        if event["ph"] == "X":
            self.slices += 1
            end = at + self.ns(event["dur"])
            while stack and stack[-1][0] <= at:
                stack.pop()
            if stack and end > stack[-1][0]:
                self.dropped.append(event)
            else:
                stack.append((end, event))
        elif not stack:
            self.unbound.append(event)
        elif event["ph"] == "s":
            assert event["id"] not in self.flows
            self.flows[event["id"]] = [stack[-1][1]]
        else:
            assert event["ph"] == "f" and event["bp"] == "e"
            self.flows[event["id"]].append(stack[-1][1])


def test_perfetto_drops_nothing_and_binds_every_arrow(found):
    text = timeline_json(found)
    read = PerfettoImport(text)
    assert read.slices > 100 and not read.dropped and not read.unbound
    assert read.flows and all(len(ends) == 2 for ends in read.flows.values())
    assert all(before["ts"] <= after["ts"] for before, after in read.flows.values())


def test_a_slice_that_overlaps_by_a_nanosecond_is_dropped():
    """The importer above is as strict as Perfetto's."""
    track = {"pid": 1, "tid": 0, "ph": "X", "name": "a"}
    thread = {"pid": 1, "tid": 0, "ph": "M", "name": "thread_name", "args": {"name": "t"}}
    first, second = {**track, "ts": 0.5, "dur": 0.501}, {**track, "ts": 1.0, "dur": 1.0}
    assert PerfettoImport(json.dumps({"traceEvents": [thread, first, second]})).dropped


def test_arrows_go_forward_and_the_path_is_the_latency(found):
    events = json.loads(timeline_json(found))["traceEvents"]
    begins = {event["id"]: event for event in events if event["ph"] == "s"}
    ends = {event["id"]: event for event in events if event["ph"] == "f"}
    assert begins.keys() == ends.keys() and begins
    assert all(begins[number]["ts"] <= ends[number]["ts"] for number in begins)
    along = sum(event["dur"] for event in spans_of(events, PATH))
    assert along == pytest.approx(max(found.run.timeline.done) * 1e-3, rel=1e-3)


def test_counters_hold_what_memory_has_and_return_to_nothing(found):
    events = json.loads(timeline_json(found))["traceEvents"]
    values = defaultdict(list)
    for event in events:
        if event["ph"] == "C":
            values[event["name"]].append((event["ts"], event["args"]["value"]))
    held = [value for _, value in values["SBUF bytes a partition"]]
    assert 2048 * 4 <= max(held) <= 192 * 1024 and held[-1] == 0 and min(held) >= 0
    rates = values["HBM GB/s"]
    step = rates[1][0] - rates[0][0]
    moved = sum(value * step * 1e3 for _, value in rates)
    total = sum(cost.bytes for cost in found.run.costs if cost)
    assert moved == pytest.approx(total, rel=0.02)


def test_what_was_not_measured_is_said():
    """Issue 17, point 7: trn3's constants come from documents; no difference is called resolved."""
    specs = [AbstractTensor(shape, np.dtype(np.float32)) for shape in ((2, 128, 64), (128, 64))]
    found = profile(trace_kernel(crowded, specs, target="trn2"), TARGETS["trn3"])
    text = profile_text(found, interval(found))
    assert "Nothing was measured on trn3" in text
    assert "unresolved" not in text and "would measure" not in text
