"""Nsight Compute: what it printed on an H200 is read, and every way in which it may be missing said.

`add_on_h200.csv` is what `ncu --csv --page raw` 2025.3 printed there, its columns cut to those that are
read, for one launch of a Triton kernel that adds two arrays of 2**26 floats.
"""

import gzip
import os
import shlex
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from timed_kernels import timed

from accelopt.kernels.gpu.bench.files.tracefiles import TraceFolder
from accelopt.kernels.gpu.bench.gpu_lock import gpu_lock
from accelopt.kernels.gpu.bench.judging.evaluation_task import Task
from accelopt.kernels.gpu.bench.roofline import Bound
from accelopt.kernels.gpu.diagnosis import of_counters
from accelopt.kernels.gpu.profiling import ncu
from accelopt.kernels.gpu.profiling.metrics import Metrics, Unavailable, main_kernel, read_kernels
from accelopt.kernels.gpu.profiling.ncu import collect
from accelopt.ptx.regions import analyse

RECORDED = Path(__file__).with_name("add_on_h200.csv")
STARTER = TraceFolder(
    Path(__file__).resolve().parents[4] / "experiments" / "flb_optimize" / "starter_trace"
)
PTX = Path(__file__).parents[3] / "ptx" / "corpus"
ELEMENTS = 1 << 26
PROFILE = timed(0.19, "NVIDIA H200", False)


@pytest.fixture(scope="module")
def counted():
    return main_kernel(read_kernels(RECORDED.read_text()))


def test_bytes_are_those_that_must_move(counted):
    assert counted.kernel_name == "add"
    assert counted.dram_bytes == pytest.approx(12 * ELEMENTS, rel=0.1)
    assert counted.value("dram_read_bytes") == pytest.approx(8 * ELEMENTS, rel=1e-3)
    assert counted.value("dram__bytes_read.sum") == counted.value("dram_read_bytes")
    ptx = gzip.decompress((PTX / "add_sm90_w4_s2.ptx.gz").read_bytes()).decode()
    block = analyse(ptx).work.global_bytes
    assert counted.dram_bytes == pytest.approx(block * ELEMENTS / 1024, rel=0.1)


def test_the_summary_holds_the_published_parts(counted):
    said = counted.summary()
    assert {"kernel_name", "device_name", "speed_of_light", "scheduling", "memory"} == set(said)
    assert said["speed_of_light"]["gpu_dram_throughput_pct"] == pytest.approx(89.54)
    assert said["memory"]["dram_bytes_per_second"] == pytest.approx(4.307e12, rel=1e-3)
    assert Metrics.model_validate_json(counted.model_dump_json()) == counted


def test_a_copying_kernel_is_limited_by_memory(counted):
    bound = Bound(12 * ELEMENTS, 0.0, 0.168, 0.0)
    found = of_counters(counted, bound, PROFILE, "triton")
    assert found.origin == "Nsight Compute" and found.bottleneck.resource == "gmem"
    assert found.memory_sol == pytest.approx(0.8954)
    assert found.registers == 26 and found.occupancy == pytest.approx(0.8417)
    assert found.notes == ()
    shares = [one.share for one in found.bottlenecks]
    assert shares == sorted(shares, reverse=True) and all(0 < share <= 1 for share in shares)


def test_bytes_moved_in_vain_are_said(counted):
    found = of_counters(counted, Bound(3 * ELEMENTS, 0.0, 0.042, 0.0), PROFILE, "triton")
    assert "moves 786.5 MB where the problem needs 201.3" in found.notes


def test_units_may_be_scaled_and_the_longest_of_several_kernels_counts():
    table = (
        '"ID","Kernel Name","gpu__time_duration.sum","dram__bytes_read.sum"\n'
        '"","","us","Mbyte"\n'
        '"0","void at::native::fill(int)","90","0.5"\n'
        '"1","mine","10","2.5"\n'
    )
    first, second = read_kernels(table)
    assert (first.share, second.share) == (pytest.approx(0.9), pytest.approx(0.1))
    assert second.value("dram_read_bytes") == pytest.approx(2.5e6)
    assert main_kernel((first, second)) is second


def task():
    name = "softmax_n8192"
    return Task(
        root=STARTER.root,
        definition=STARTER.definitions[name],
        workload=STARTER.workloads[name][0],
        solution=STARTER.solutions_of(name)[0],
    )


def put(folder, script, monkeypatch):
    """A program in the place of `ncu`."""
    program = folder / "ncu"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")


def printed(folder):
    """A shell command that prints what the tool did, with our own kernel in front."""
    *lines, add = RECORDED.read_text().splitlines()
    ours = add.replace('"add"', '"void at::native::mul"')
    (folder / "table.csv").write_text("\n".join([*lines, ours, add]) + "\n")
    return f"cat {shlex.quote(str(folder / 'table.csv'))}"


def test_counters_are_those_that_the_tool_prints(tmp_path, monkeypatch):
    put(tmp_path, f"{printed(tmp_path)}; printf 'NVIDIA H200' > device", monkeypatch)
    found = collect(task())
    assert isinstance(found, Metrics), found
    assert found.kernel_name == "add"
    assert found.summary()["device_name"] == "NVIDIA H200"  # as the program under `ncu` says


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("echo '==ERROR== ERR_NVGPUCTRPERM - The user does not have permission'; exit 1",
         "may not read the GPU's counters"),
        ("echo '==ERROR== Failed to prepare kernel for profiling' >&2; exit 9", "Failed to prepare"),
        ("echo '==ERROR== An error was reported by the driver:'; echo '==ERROR== It is gone.'; echo "
         "'==ERROR== The application returned an error code (9).'; exit 9", "==ERROR== It is gone."),
        ("echo hello", "gave no counters: hello"),
    ],
)  # fmt: skip
def test_why_there_are_no_counters_is_said(tmp_path, monkeypatch, script, reason):
    put(tmp_path, script, monkeypatch)
    found = collect(task())
    assert isinstance(found, Unavailable) and reason in found.reason


def test_the_device_is_had_alone_only_from_when_the_program_is_there(tmp_path, monkeypatch):
    began = tmp_path / "began"
    script = f"touch {began} ready; while [ ! -e go ]; do sleep 0.02; done; {printed(tmp_path)}"
    put(tmp_path, script, monkeypatch)
    with ThreadPoolExecutor(1) as pool:
        with gpu_lock(task().device, alone=True):
            found = pool.submit(collect, task())
            while not began.exists():
                time.sleep(0.02)
            time.sleep(0.2)
            assert not found.done()
        assert isinstance(found.result(), Metrics)


def test_counters_that_another_profiler_has_are_asked_for_again(tmp_path, monkeypatch):
    told = tmp_path / "told"
    taken = "==ERROR== Profiling failed because a driver resource was unavailable."
    script = f"echo asked >> {told}; [ $(wc -l < {told}) -ge 3 ] && {printed(tmp_path)} || echo '{taken}'"
    put(tmp_path, script, monkeypatch)
    monkeypatch.setattr(ncu, "PAUSES", (0.0, 0.0))
    found = collect(task())
    assert isinstance(found, Metrics), found
    # whether one may count, the third time; and the call
    assert told.read_text().split() == ["asked"] * 4


def test_nothing_is_profiled_unless_asked_for(monkeypatch):
    assert collect(task(), 0) == collect(task(), 3, 2) == Unavailable("it was not asked for")
    monkeypatch.setenv("PATH", "/nowhere")
    assert collect(task(), 3, 3) == Unavailable("`ncu` is not on the PATH")
