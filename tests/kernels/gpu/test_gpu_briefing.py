"""What a planner reads of a solution that was measured on a GPU."""

from timed_kernels import timed

from accelopt.kernels.gpu.bench.roofline import Bound
from accelopt.kernels.gpu.briefing import briefing
from accelopt.kernels.gpu.diagnosis import of_counters, of_roofline
from accelopt.kernels.gpu.profiling.metrics import Metrics
from accelopt.knob_space import KnobSpec, Space

BOUND = Bound(bytes=48_000_000, operations=2_000_000_000, memory_ms=0.02, compute_ms=0.005)
SPACE = Space(kernel="k", shape={}, knobs=(KnobSpec(name="num_warps", type="int", allowed=(4, 8)),))


def measured(latency):
    return timed(latency, "h100", False)


def test_it_names_the_resource_the_gap_the_settings_and_what_may_help():
    text = briefing(0.05, of_roofline(BOUND, measured(0.05), "triton"), SPACE, "triton")
    first, *rest = text.splitlines()
    assert first.startswith("By roofline, waiting limits it")  # 60% of the time is neither
    assert any(row.startswith("- memory, 40% of the time: at least 48.0 MB") for row in rest)
    assert "Between 0.05 ms and the least possible lie 0.03 ms." in rest
    assert "Its settings, which rules can change too: num_warps=4." in rest
    near = briefing(0.021, of_roofline(BOUND, measured(0.021), "triton"), None, "triton")
    assert near.startswith("By roofline, memory limits it") and "lie only 0.001 ms" in near
    assert "What may relieve memory:" in near and "settings" not in near


def test_counters_tell_what_the_compiled_kernel_uses():
    counted = Metrics(
        kernel_name="k",
        share=1.0,
        sections={
            "speed_of_light": {"gpu_dram_throughput_pct": 80.0},
            "launch": {"registers_per_thread": 64.0},
        },
        raw={},
    )
    text = briefing(0.05, of_counters(counted, BOUND, measured(0.05), "triton"), None, "triton")
    assert text.startswith("By Nsight Compute, memory limits it") and "DRAM is busy 80%" in text
    assert "It uses 64 registers a thread." in text
    assert briefing(0.05, None, None, "triton") == ""
