"""What limits a kernel, as data: the same for `accelopt profile`, strategies and prompts."""

from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from timed_kernels import timed

from accelopt.evaluation import Diagnosis
from accelopt.kernels.moves import METHODS, methods_of, methods_that_touch
from accelopt.kernels.nki.benchmark import read_benchmark, summary_path
from accelopt.kernels.nki.devices.tracing import arguments_to_json
from accelopt.kernels.nki.diagnosis import diagnose, measured
from accelopt.kernels.nki.inspection import _profiled
from accelopt.kernels.nki.nests.primitives import Primitive
from accelopt.kernels.nki.requests import made_arguments
from accelopt.sim.dialects.neuronxcc import isa as nisa
from accelopt.sim.dialects.neuronxcc import language as nl
from accelopt.sim.dialects.neuronxcc.kernel import trace_kernel
from accelopt.sim.timing import profile
from accelopt.sim.timing.what_if import without_engines
from accelopt.sim.trace import AbstractTensor

ROOT = Path(__file__).resolve().parents[3]
F32 = np.dtype(np.float32)


def spilling(x):
    """Keeps more than SBUF holds, and reads it backwards: DMA limits it."""
    count, rows, width = x.shape
    out = nl.ndarray((count, rows, width), dtype=x.dtype, buffer=nl.shared_hbm)
    made = nl.ndarray((count, nl.par_dim(rows), width), dtype=x.dtype, buffer=nl.sbuf)
    for i in nl.affine_range(count):
        made[i, 0:rows, 0:width] = nl.square(nl.load(x[i, 0:rows, 0:width]))
    for i in nl.affine_range(count):
        nl.store(out[i, 0:rows, 0:width], nisa.reciprocal(made[count - 1 - i, 0:rows, 0:width]))
    return out


def computing(x):
    """One tile, on which the Vector engine works again and again."""
    rows, width = x.shape
    out = nl.ndarray((rows, width), dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nisa.reciprocal(nisa.reciprocal(nisa.reciprocal(nl.load(x))))
    tile = nisa.reciprocal(nisa.reciprocal(nisa.reciprocal(tile)))
    nl.store(out, tile)
    return out


def diagnosis(kernel, shape):
    return diagnose(profile(trace_kernel(kernel, [AbstractTensor(shape, F32)])))


@pytest.fixture(scope="module")
def spills():
    return diagnosis(spilling, (30, 128, 2048))


def test_bottlenecks_are_distinct_resources_the_largest_first(spills):
    resources = [one.resource for one in spills.bottlenecks]
    assert resources[0] == "dma" and len(set(resources)) == len(resources)
    gains = [one.gain for one in spills.bottlenecks if one.gain is not None]
    assert gains == sorted(gains, reverse=True) and 0 <= gains[-1] <= gains[0] < 1
    assert all(0 < one.share <= 1 for one in spills.bottlenecks)
    assert f"would take {gains[0]:.0%} less" in spills.bottleneck.reason
    assert spills.bottleneck.category == "memory"
    idle = 1 - max(share for name, share in spills.utilisation.items() if name != "overlap")
    assert spills.utilisation["overlap"] == pytest.approx(idle)


def test_what_holds_a_kernel_up_comes_before_what_is_busy():
    """Of NKIBench's silu DMA is busiest; without the Vector engine it would gain more."""
    [case] = [one for one in read_benchmark(summary_path(ROOT)).cases if one.problem == "silu"]
    arguments = arguments_to_json(a.argument for a in made_arguments(Path(case.task)).arguments)
    found = _profiled({"kernel": case.kernel, "arguments": arguments, "target": "trn1"})
    ranked = [one.resource for one in diagnose(found).bottlenecks]
    assert max(found.occupancy, key=found.occupancy.get) == "dma"
    assert ranked.index("vector") < ranked.index("dma")
    by_share = [one.resource for one in diagnose(found, ranked=False).bottlenecks]
    assert by_share[0] == "dma"
    times = {one.name: one.latency_ms for one in without_engines(found)}
    assert times["vector"] < times["dma"]


def test_what_spills_is_a_reason_and_a_number(spills):
    assert "made of line " in spills.bottleneck.reason and "moved again" in spills.bottleneck.reason
    assert spills.spilled_bytes > 2 * 128 * 2048 * 4
    assert (
        spills.memory_sol > 0 and spills.fraction_of_peak is None
    )  # its problem's kernels say that


def test_lines_say_what_keeps_a_resource_busy(spills):
    by_number = {line.number: line for line in spills.lines}
    [first, *_] = spills.bottleneck.lines
    assert by_number[first].busy_ms["dma"] == max(
        line.busy_ms.get("dma", 0.0) for line in spills.lines
    )
    found = diagnosis(computing, (128, 512))
    vector = next(one for one in found.bottlenecks if one.resource == "vector")
    assert "reciprocal" in {line.number: line for line in found.lines}[vector.lines[0]].text


def test_methods_are_those_of_the_table_that_touch_the_resource(spills):
    for one in spills.bottlenecks:
        assert all(one.resource in METHODS[name].touches for name in one.methods)
        assert one.methods == methods_that_touch("nki", one.resource)
    assert "keep" in spills.bottleneck.methods and "split_k" not in spills.bottleneck.methods


def test_every_primitive_of_nests_is_a_method():
    kinds = {kind.model_fields["kind"].default for kind in get_args(get_args(Primitive)[0])}
    assert kinds <= set(methods_of("nki"))


def test_it_is_json(spills):
    assert Diagnosis.model_validate_json(spills.model_dump_json()) == spills


def test_a_real_profile_decides_the_shares_and_the_simulation_the_lines(spills):
    metrics = {"dma_active_time_percent": 0.2, "vector_engine_active_time_percent": 0.7}
    real = timed(1, "trn1", False, **metrics)
    found = measured(real, spills)
    assert (found.origin, found.bottleneck.resource) == ("neuron-profile", "vector")
    assert found.bottleneck.share == 0.7 and "as measured" in found.bottleneck.reason
    assert found.lines == spills.lines
    alone = measured(real, None)
    assert [one.resource for one in alone.bottlenecks] == ["vector", "overlap", "dma"]
    assert measured(real.model_copy(update={"metrics": {}}), None) is None
