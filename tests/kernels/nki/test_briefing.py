"""What a planner reads of a kernel: one set of figures that agree with each other."""

import re

import numpy as np
import pytest
from kernel_heads import neuronxcc_of

from accelopt.hardware import TARGETS
from accelopt.kernels.nki.briefing import briefing, describe_machine
from accelopt.sim.dialects.neuronxcc.kernel import trace_kernel
from accelopt.sim.kernel_loading import load
from accelopt.sim.timing import profile
from accelopt.sim.trace import AbstractTensor
from tests.sim.timing.timing_kernels import timed


def test_the_machine_is_the_table_of_hardware():
    for name, spec in TARGETS.items():
        text = describe_machine(spec)
        assert f"{spec.dma_peak_bytes_per_ns:.0f} GB/s" in text, name
        assert f"{spec.sbuf_usable_bytes:,} usable bytes" in text
        assert ("share one port to PSUM" in text) == spec.vector_scalar_psum_exclusive
        # What an agent was not told: half of the bound's cores (selective scan, 0.0439 to 0.0331 ms).
        assert "Two cores" not in text
        assert ("`kernel = NAME[2]`" in describe_machine(spec, "nki")) == (spec.generation >= 3)
    trn1 = describe_machine(TARGETS["trn1"])
    assert "410" not in trn1  # one rate of memory, the one that is simulated


@pytest.mark.parametrize(("columns", "room"), [(12_288, True), (6144, False)])
def test_what_rounds_of_a_loop_wait_for_is_said_with_the_limit(columns, room):
    text = neuronxcc_of("x", shape=f"(1024, {columns})")("""
for i in nl.affine_range(8):
    rows = nl.load(x[i * 128:(i + 1) * 128, :])
    for _ in nl.static_range(4):
        rows = nl.multiply(nl.exp(rows), rows)
    nl.store(out[i * 128:(i + 1) * 128, :], rows)
""")
    parts = briefing(timed(load(text, f"rows_{columns}.py").kernel, (1024, columns)), None)
    assert ("room in SBUF for a second iteration, line 10 loads only" in parts["limits"]) is room
    assert (
        "line 10: waits for the round before: two would need 288 KiB" in parts["compiler"]
    ) is room


NORMED = neuronxcc_of("x, weight")("""
row = nl.load(weight)
for i in nl.affine_range(x.shape[0] // 128):
    tile = nl.load(x[i * 128:(i + 1) * 128, :])
    size = nl.rsqrt(nl.mean(nl.square(tile), axis=1, keepdims=True))
    wide = nl.broadcast_to(row, shape=(128, 8192))
    scaled = wide * size
    moved = wide + size
    more = nl.exp(wide)
    result = ((tile * scaled + moved * 0.5) + more) + wide
    nl.store(out[i * 128:(i + 1) * 128, :], result)
""")


def test_what_is_spilled_has_its_name_its_size_and_its_way(tmp_path):
    path = tmp_path / "normed.py"
    path.write_text(NORMED)
    kernel = load(NORMED, str(path)).kernel
    prices = briefing(timed(kernel, (1024, 8192), (1, 8192)), None)["prices"]
    spilled = set(re.findall(r"(spill_\w+ \w+) 128x32768 B (\w+ > \w+)", prices))
    assert spilled == {
        ("spill_save wide", "SBUF > HBM"), ("spill_reload wide", "HBM > SBUF")
    }  # fmt: skip
    assert "1 partitions" not in prices
    assert "operand in PSUM" not in prices, "32 KiB are more than PSUM has"


REMARKED = "import numpy as np\n" + neuronxcc_of("x")("""
p, f = nl.arange(128)[:, None], nl.arange(128)[None, :]
left = nl.load(x[0:64, 0:128])
for i in nl.affine_range(4):
    tile = nl.load(x[i * 128:(i + 1) * 128, :])
    done = nl.ndarray((128, 1024), dtype=x.dtype, buffer=nl.sbuf)
    sums = nl.copy(nisa.nc_matmul(left, tile[0:64, 0:512]))
    for k in nl.static_range(8):
        done[p, k * 128 + f] = nl.maximum({far}, sums[0:128, 0:128])
    nl.store(out[i * 128:(i + 1) * 128, :], done)
""")


@pytest.mark.parametrize("target", ["trn1", "trn2"])
def test_prices_say_what_makes_an_instruction_dear(target):
    said = {}
    for way, far in (("far", "tile[p, 8 * f + k]"), ("near", "tile[p, k * 128 + f]")):
        kernel = load(REMARKED.replace("{far}", far), f"remarked_{way}.py").kernel
        said[way] = briefing(timed(kernel, (512, 1024), target=target), None)["prices"]
    assert "neighbours 32 B apart: half the rate" in said["far"]
    assert "apart" not in said["near"]
    assert "64x512" in said["near"] and "64 of 128 rows of the array work" in said["near"]
    assert ("operand in PSUM" in said["near"]) is (target == "trn1"), "trn2 gains nothing there"


MOVED = neuronxcc_of("x, places")("""
width, at = {width}, nl.load(places)
p, f = nl.arange(128)[:, None], nl.arange(width)[None, :]
for i in nl.affine_range(16):
    tile = nl.load(x[i * 128:(i + 1) * 128, :])
    start = at[0, 0] if {dynamic} else 0
    done = nisa.tensor_copy(tile[p, start + f], engine=nisa.vector_engine)
    nl.store(out[i * 128:(i + 1) * 128, 0:width], done)
""")


def moved(width, dynamic):
    """The prices of copies, each of `width` elements, from a place that is known or not."""
    text = MOVED.replace("{width}", str(width)).replace("{dynamic}", str(dynamic))
    given = [
        AbstractTensor((2048, 2048), np.dtype(np.float32)),
        AbstractTensor((1, 1), np.dtype(np.int32)),
    ]
    kernel = load(text, f"moved_{width}_{dynamic}.py").kernel
    return briefing(profile(trace_kernel(kernel, given)), None)["prices"]


def test_a_place_that_is_read_at_run_time_is_known_by_the_place_not_by_the_cycles():
    said = "its place is read at run time: 536 ns at least"
    assert said in moved(128, True) and said in moved(1024, True), "a long one takes more than that"
    fixed = moved(558, False)
    assert "536 ns" in fixed and said not in fixed
