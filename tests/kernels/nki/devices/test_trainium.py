"""The real-device path, with an SDK of NumPy functions and a profiler that plays back summaries."""

import importlib
import json
import os
import sys
import tempfile
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest

from accelopt.cli import doctor
from accelopt.cli.doctor import Setup
from accelopt.errors import ConfigError
from accelopt.evaluation import Status
from accelopt.kernel_wrapper import NKIKernel
from accelopt.kernels.nki import devices
from accelopt.kernels.nki.devices import KernelFailure, TensorArgument, Timings, neuron_profile
from accelopt.kernels.nki.devices.measured_profile import read_profile
from accelopt.kernels.nki.devices.neuron_profile import ProfilerError, parse_summary
from accelopt.kernels.nki.devices.trainium import TrainiumDevice, closed, generation

HERE = Path(__file__).parent
SDK = str(HERE / "sdk")

# The shape of a summary recorded with the Neuron SDK: one object under the profile's id.
SUMMARY = {
    "total_time": 0.001,
    "hbm_read_bytes": 4096,
    "vector_engine_active_time_percent": 0.25,
    "nc_idx": 0,
}


def summary(milliseconds: float) -> str:
    return json.dumps({"n_1": {**SUMMARY, "total_time": milliseconds * 1e-3}})


@pytest.fixture
def profiler(tmp_path):
    """Write the profiler executable and what it answers; returns its path."""

    def make(summaries, name="neuron-profile", **script) -> str:
        folder = tmp_path / "profiler"
        folder.mkdir(exist_ok=True)
        (folder / "script.json").write_text(json.dumps({"summaries": summaries, **script}))
        program = folder / name
        program.write_text(f"#!{sys.executable} -I\n" + (HERE / "fake_profiler.py").read_text())
        program.chmod(0o755)
        return str(program)

    return make


@pytest.fixture(scope="module")
def of_today(tmp_path_factory):
    """A kernel of `nki` that is compiled; whose profiler times it each test says."""
    path = tmp_path_factory.mktemp("of_today") / "kernel.py"
    path.write_text("import numpy as np\n\n\n" + textwrap.dedent(TODAY))
    executable = device("nowhere").compile(str(path), [TensorArgument((4, 3), "float32")])
    yield executable
    executable.close()


@pytest.fixture
def kernel(tmp_path):
    def write(body: str) -> str:
        path = tmp_path / "kernel.py"
        path.write_text("import numpy as np\n\n\n" + textwrap.dedent(body))
        return str(path)

    return write


REFERENCE = """
import numpy as np
def get_inputs():
    return [np.random.normal(size=(64, 32)).astype(np.float32), 2.0]
def forward(x, factor):
    return x * np.float32(factor)
def transform_nki_outputs(k_res, ref):
    return [np.reshape(k_res, ref.shape)]
"""
DOUBLE = """
    def kernel(x, factor):
        return x * np.float32(factor)
"""


def device(profiler: str) -> TrainiumDevice:
    return TrainiumDevice(core=3, profiler=profiler, sdk_paths=(SDK,))


def wrapped(tmp_path, kernel: str, profiler: str) -> NKIKernel:
    reference = tmp_path / "reference.py"
    reference.write_text(REFERENCE)
    return NKIKernel(kernel, reference, device=device(profiler), cache=tmp_path)


def test_profile_of_a_correct_kernel(tmp_path, kernel, profiler):
    command = profiler([summary(ms) for ms in (1.00, 1.004, 1.002)])
    found = wrapped(tmp_path, kernel(DOUBLE), command).profile(["hbm_read_bytes", "not_there"])
    assert found.compiled and found.runnable and found.correct, found
    assert found.metadata["latency"] == pytest.approx(1.002)
    assert found.metadata["min_ms"] == pytest.approx(1.0)
    assert found.metadata["max_ms"] == pytest.approx(1.004)
    assert found.metadata["rel_diffs"] == pytest.approx(0.004)
    assert found.metadata["hbm_read_bytes"] == 4096
    assert "not_there" not in found.metadata
    assert found.metadata["simulated"] is False and found.metadata["stable"] is True
    calls = (Path(command).parent / "calls.txt").read_text().splitlines()
    assert sum(call.startswith("capture") for call in calls) == 12
    assert sum(call.startswith("view") for call in calls) == 10


@pytest.mark.slow
def test_noisy_timing_is_repeated_and_flagged(tmp_path, kernel, profiler):
    command = profiler([summary(ms) for ms in (1.0, 1.5, 2.0)])
    found = wrapped(tmp_path, kernel(DOUBLE), command).profile()
    assert found.correct and found.metadata["stable"] is False
    calls = (Path(command).parent / "calls.txt").read_text().splitlines()
    assert sum(call.startswith("view") for call in calls) == 100


@pytest.mark.parametrize(
    ("body", "key"),
    [
        ("def kernel(x, factor):\n    raise ValueError('tile too large')", "compilation_error"),
        ("def wrong_name(x, factor):\n    return x", "compilation_error"),
        ("def kernel(x, factor):\n    raise SystemExit(0)", "compilation_error"),
        ("def kernel(x, factor):\n    return x", "correctness_error"),
        ("def kernel(x, factor):\n    return x[:3]", "correctness_error"),
        ("def kernel(x, factor):\n    return x / 0 * 0", "correctness_error"),
    ],
)
def test_failures_are_under_the_published_keys(tmp_path, kernel, profiler, body, key):
    found = wrapped(tmp_path, kernel(body), profiler([summary(1)])).profile()
    assert not found.correct and set(found.metadata) >= {key}, found
    assert "latency" not in found.metadata


def test_profiler_faults_are_benchmarking_errors(tmp_path, kernel, profiler):
    found = wrapped(tmp_path, kernel(DOUBLE), profiler(["not json"])).profile()
    assert "benchmarking_error" in found.metadata and "latency" not in found.metadata


def test_a_missing_profiler_is_a_benchmarking_error(tmp_path, kernel):
    executable = device("/nowhere/neuron-profile").compile(
        kernel(DOUBLE), [TensorArgument((4, 4), "float32"), 2.0]
    )
    with pytest.raises(KernelFailure) as failure:
        executable.measure(Timings(0, 1))
    assert failure.value.status is Status.BENCHMARK_ERROR
    executable.close()
    assert not executable.folder.exists()


def test_outputs_pass_through_files_unharmed(kernel, profiler):
    executable = device(profiler([summary(1)])).compile(
        kernel("def kernel(x):\n    return x.T, x.astype(np.float16)"),
        [TensorArgument((4, 3), "float32")],
    )
    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    first, second = executable.run([x])
    assert np.array_equal(first, x.T) and second.dtype == np.float16
    assert not any(executable.folder.glob("tmp*"))
    executable.close()


@pytest.mark.parametrize(
    "left, told, said",
    [
        ("array.tofile(path)", {}, "output_0.npy holds no array"),
        ("np.savez(path.open('wb'), array)", {}, "output_0.npy holds no array"),
        ("np.save(path, array)", {"dtype": "floaty"}, "said to be of 'floaty', which is no format"),
        ("np.save(path, array)", {"dtype": "f4,("}, "said to be of 'f4,(', which is no format"),
        ("np.save(path, array)", {"dtype": ["f4"]}, "which is no format of NKI"),
        ("np.save(path, array)", {"dtype": "bfloat16"}, "holds uint8, not the bits of bfloat16"),
        ("np.save(path, array)", ["dtype"], "left a damaged result"),
        ("path.symlink_to('/dev/zero')", {}, "output_0.npy is no file"),
    ],
)
def test_what_a_kernel_leaves_in_place_of_outputs_is_its_failure(
    kernel, profiler, left, told, said
):
    body = f"""
        from accelopt.kernels.nki.devices import baremetal

        def kernel(x):
            return x

        def save_array(folder, name, array):
            path, array = folder / (name + ".npy"), np.ones((3, 3), np.uint8)
            {left}
            return {told!r}

        baremetal.save_array = save_array
    """
    with pytest.raises(KernelFailure, match="the kernel's process left a damaged") as failure:
        device(profiler([])).compile(kernel(body), [TensorArgument((4, 3), "float32")])
    assert said in failure.value.message and "\n" not in failure.value.message


def test_without_a_core_the_simulated_device_is_chosen():
    if generation() is None:
        assert devices.choose("trn2").simulated


def test_summary_parsing():
    assert parse_summary("log line\n" + summary(2))["total_time"] == pytest.approx(0.002)
    for text in (
        "",
        "not json",
        "{",
        "{}",
        summary(-1),
        '{"a": {}}',
        '{"a": {"total_time": "x"}}',
        "[1]",
    ):
        with pytest.raises(ProfilerError):
            parse_summary(text)


TODAY = """
    import nki

    @nki.jit
    def kernel(x):
        return x * np.float32(2)
"""
TABLES = {
    "Summary": [{"total_time": 3e-6, "vector_engine_active_time": 1e-6}],
    "Metadata": [{"instance_type": "trn2.3xlarge", "profile_schema_version": "12.0.1"}],
    "Instruction": [{"engine": "Vector", "opcode": "TENSOR_SCALAR", "start_ts": 10, "end_ts": 90,
                     "nki_source_location": "kernel.py:7"}],
}  # fmt: skip
PACKET = {"queue_type": "instruction", "start_ts": 1, "end_ts": 2, "queue_idx": 0}


def test_a_kernel_of_today_is_compiled_by_its_own_package(kernel, profiler):
    """SDK 2.32: `nki.jit` on NumPy arrays runs standalone, NEURON_FRAMEWORK_DEBUG=1 keeps the compiled file;
    where an explorer has no summary as JSON any more, that of its Parquet tables is read."""
    pytest.importorskip("pyarrow")
    argument = [TensorArgument((4, 3), "float32")]
    for name, script in (
        ("neuron-explorer", {}),
        ("neuron-explorer", {"no_summary": True, "tables": TABLES}),
    ):
        command = profiler([summary(0.003)], name, **script)
        executable = device(command).compile(kernel(TODAY), argument)
        x = np.ones((4, 3), np.float32)
        assert (executable.run([x])[0] == 2).all()
        timed = executable.measure(Timings(1, 2))
        assert timed.runs_ms == pytest.approx((0.003, 0.003))
        assert not [*executable.folder.glob("*.tables")]
        executable.close()
    plain = kernel("import nki\n\ndef kernel(x):\n    return x")
    device(command).compile(plain, argument).close()
    lost = kernel("import nki\n\ndef forgetful(x):\n    return x\n\nkernel = nki.jit(forgetful)")
    with pytest.raises(KernelFailure, match=r"left no \.neff file") as failure:
        device(command).compile(lost, argument)
    assert failure.value.status is Status.COMPILE_ERROR


@pytest.mark.parametrize(
    ("tables", "said"),
    [
        ({}, "left no profile in"),
        ({**TABLES, "Summary": "garbage"}, r"Summary.parquet is damaged"),
        ({**TABLES, "Summary": [{"other": 1.0}]}, "has no column total_time"),
        ({**TABLES, "Summary": [{"total_time": 0.0}]}, "no positive total_time"),
        ({**TABLES, "Summary": [{"total_time": "3us"}]}, "no number as total_time"),
        ({**TABLES, "Summary": [{"total_time": float("nan")}]}, "no number as total_time"),
        (
            {**TABLES, "Instruction": [{**TABLES["Instruction"][0], "end_ts": None}]},
            "row 0 of Instruction",
        ),
        (
            {**TABLES, "Instruction": [{**TABLES["Instruction"][0], "end_ts": 1e999}]},
            "the duration inf",
        ),
        ({**TABLES, "Instruction": [{**TABLES["Instruction"][0], "engine": 3}]}, "3 is no name of"),
        ({**TABLES, "Instruction": []}, "no column engine|has no row"),
        ({**TABLES, "DmaPacket": [{**PACKET, "transfer_bytes": -5}]}, "-5 bytes are moved"),
    ],
)
def test_an_explorer_that_misbehaves_is_a_benchmarking_error(of_today, profiler, tables, said):
    """Both ways to a summary fail, and both are told."""
    pytest.importorskip("pyarrow")
    of_today.device = device(profiler([], "neuron-explorer", no_summary=True, tables=tables))
    with pytest.raises(KernelFailure, match=said) as failure:
        of_today.measure(Timings(0, 1))
    assert failure.value.status is Status.BENCHMARK_ERROR
    assert "unknown output format: summary-json" in failure.value.message


MISDEEDS = {
    "exit 0": "capture wrote no kernel.ntff",
    "exec sleep 600": "capture took longer than 1 s",
    "touch $5; (sleep 600) & exit 3": r"capture ended with exit code 3: $",
    "head -c 10000000 /dev/zero | tr '\\0' x >&2; echo 'no \033[31mcore\nleft' >&2; exit 1":
        r"capture ended with exit code 1: x*.?no .*core left$",
    "printf '\\377\\376 broken' >&2; exit 1": "exit code 1: \ufffd\ufffd broken",
    "echo 'No space left on device' >&2; exit 28": "exit code 28: No space left on device",
    "kill -9 $$": "ended with exit code -9: ",
    "[ $1 = view ] || touch $5": "view left no profile in",
    "[ $1 = view ] || touch $5; [ $1 = capture ] || head -c 100 /dev/urandom > $5": "view ended with exit code 2: .*tables|profile.json",
}  # fmt: skip


@pytest.mark.parametrize("name", ["neuron-explorer", "neuron-profile"])
@pytest.mark.parametrize("script", MISDEEDS)
def test_a_tool_that_misbehaves_is_one_sentence_and_nothing_old_is_taken(
    tmp_path, of_today, name, script
):
    """Both tools, beside what an earlier capture left in the folder; what they print is kept to its end."""
    tool = tmp_path / name
    tool.write_text(f"#!/bin/sh\n{script}\n")
    tool.chmod(0o755)
    kept = tmp_path / "kept"
    (kept / "tables").mkdir(parents=True)
    for old in ("kernel.ntff", "tables/Summary.parquet", "tables/profile.json"):
        (kept / old).write_bytes(b"PAR1")
    limit = 1.0 if "exec" in script else 60.0
    of_today.device = TrainiumDevice(profiler=str(tool), capture_seconds=limit)
    started = time.monotonic()
    with pytest.raises((KernelFailure, ConfigError), match=MISDEEDS[script]) as failure:
        read_profile(of_today.profile(kept))
    assert time.monotonic() - started < 120 and len(str(failure.value)) < 700
    assert "\n" not in str(failure.value) and "\033" not in str(failure.value)
    with pytest.raises(KernelFailure, match=r"kept/kernel\.neff/below: not a directory"):
        of_today.profile(kept / "kernel.neff" / "below")
    tool.chmod(0o644)
    with pytest.raises(KernelFailure, match=f"{name} capture: permission denied"):
        of_today.profile(kept)


def test_a_whole_profile_is_kept_for_comparisons(tmp_path, kernel, profiler):
    """The compiled file, the trace of the second run and the tables lie in the folder."""
    pytest.importorskip("pyarrow")
    command = profiler([], "neuron-explorer", tables=TABLES)
    executable = device(command).compile(kernel(TODAY), [TensorArgument((4, 3), "float32")])
    found = read_profile(executable.profile(tmp_path / "kept"))  # in the viewer's own folder below
    executable.close()
    assert found.latency_ms == pytest.approx(0.003) and found.target == "trn2"
    assert [(i.engine, i.line) for i in found.instructions] == [("vector", 7)]
    assert {path.name for path in (tmp_path / "kept").iterdir()} == {
        "kernel.neff",
        "kernel.ntff",
        "tables",
    }
    calls = (Path(command).parent / "calls.txt").read_text().splitlines()
    assert [call.split()[0] for call in calls] == ["capture", "capture", "view"]


@pytest.fixture
def device_files():
    """A folder in the place of /dev that any user may read."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def test_the_doctor_tells_what_of_a_device_is_there(tmp_path, device_files, monkeypatch):
    """Nothing: the simulated core. Else what is there, devices that cannot be opened, tools that lack, fail, hang or
    are no longer of the SDK, in one sentence with what to do."""
    if generation() or neuron_profile.executable():
        pytest.skip("a host that has some of it")
    setup, tools = Setup(tmp_path, tmp_path, None, "trn2"), tmp_path / "tools"
    tools.mkdir()
    monkeypatch.setenv("PATH", str(tools), prepend=os.pathsep)
    assert "no Neuron device, SDK or profiler" in doctor.device(setup, device_files)

    def told(tool="", script="") -> str:
        for old in tools.iterdir():
            old.unlink()
        if tool:
            (tools / tool).write_text(f"#!/bin/sh\n{script}\n")
            (tools / tool).chmod(0o755)
        with pytest.raises(ConfigError) as error:
            doctor.device(setup, device_files)
        assert "\n" not in str(error.value)
        return str(error.value)

    said = told("neuron-explorer", "echo neuron-explorer 2.33.1; echo more")
    assert "neuron-explorer (neuron-explorer 2.33.1); what lacks: a Neuron device" in said
    assert "the SDK: install `nki`" in said
    (device_files / "neuron0").symlink_to(tmp_path / "gone")
    said = told()
    assert "1 Neuron device; what lacks: " in said and "a profiler: apt install" in said
    assert "neuron0 cannot be opened (no such file or directory): `sudo modprobe neuron`" in said
    (device_files / "neuron0").unlink()
    (device_files / "neuron0").touch(0o000)
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    try:
        assert "(permission denied): join the group" in closed(device_files)
    finally:
        if root:
            os.seteuid(0)
    (device_files / "neuron0").chmod(0o666)
    assert closed(device_files) == ""
    said = told("neuron-explorer", "echo libnrt.so.1 not found >&2; exit 127")
    assert "to be installed anew" in said and "exit code 127: libnrt.so.1 not found" in said
    (tools / "neuron-explorer").write_text("#!/bin/sh\nexec sleep 60\n")
    with pytest.raises(ProfilerError, match=r"--version took longer than 0\.2 s"):
        neuron_profile.version(str(tools / "neuron-explorer"), 0.2)
    sdk = tmp_path / "sdk"
    (sdk / "nki" / "language").mkdir(parents=True)
    (sdk / "nki-0.2.1.dist-info").mkdir()
    meta = sdk / "nki-0.2.1.dist-info" / "METADATA"
    monkeypatch.syspath_prepend(str(sdk))
    for module in [name for name in sys.modules if name.partition(".")[0] == "nki"]:
        monkeypatch.delitem(sys.modules, module)
    for number, lacks in (("0.2.1", "a newer nki than 0.2, of which"), ("0.7.0", "no SDK has")):
        meta.write_text(f"Metadata-Version: 2.1\nName: nki\nVersion: {number}\n")
        importlib.invalidate_caches()
        assert lacks in told("neuron-profile", "echo 2.28")
