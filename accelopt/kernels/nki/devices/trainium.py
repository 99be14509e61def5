"""A real NeuronCore: the Neuron SDK compiles and runs in a confined child, `neuron-explorer` times
(`neuron-profile` where that is what there is).

The child that imports the kernel's file only compiles and runs it. Timing is done here, on the
compiled file, by the profiler, so that a kernel cannot write its own measurement.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from accelopt.errors import AcceloptError, reason
from accelopt.evaluation import Status
from accelopt.hardware import TARGETS
from accelopt.kernels.measurement import TimedRuns
from accelopt.kernels.nki.devices import neuron_profile
from accelopt.kernels.nki.devices.arrays import load_array, save_array
from accelopt.kernels.nki.devices.kernel_folder import kernel_folder
from accelopt.kernels.nki.devices.measured_profile import read_profile
from accelopt.kernels.nki.devices.protocol import (
    CompiledKernel,
    KernelArgument,
    KernelFailure,
    TensorArgument,
    Timings,
)
from accelopt.kernels.nki.devices.simulated import ended_early
from accelopt.kernels.nki.devices.tracing import arguments_to_json, read_message
from accelopt.sandbox import ChildOutcome, Limits, Policy, remove, run, scratch_folder
from accelopt.sandbox.drivers import NEURON
from accelopt.sim import dtypes
from accelopt.sim.standin import sdk_installed
from accelopt.time_limits import CAPTURE_SECONDS, DEVICE_SECONDS, TRACE_SECONDS

MEMORY_BYTES = 64 << 30
DISK_BYTES = 32 << 30
# fp32 functions of the scalar engine are table interpolations, good to a few parts in 2**20.
ROUNDING = 16.0

_DEVICES = Path("/dev")
_PRODUCT_NAME = Path("/sys/devices/virtual/dmi/id/product_name")


def available() -> bool:
    """True when the Neuron SDK, its profiler and a Neuron device are on this machine."""
    sdk = any(sdk_installed(package) for package in ("nki", "neuronxcc"))
    return sdk and neuron_profile.executable() is not None and bool(cores())


def cores(folder: Path = _DEVICES) -> list[str]:
    """The Neuron devices of this machine, by their names under /dev."""
    return sorted(path.name for path in folder.glob("neuron[0-9]*"))


def closed(folder: Path = _DEVICES) -> str:
    """Why the first Neuron device that cannot be opened is not, and what to do ("Neuron security": a group may own
    them); empty where all can."""
    for name in cores(folder):
        try:
            os.close(os.open(folder / name, os.O_RDWR | os.O_NONBLOCK))
        except PermissionError as error:
            return (
                f"{folder / name} cannot be opened ({reason(error)}): join the group that `ls -l` "
                "names of it (`sudo usermod -aG GROUP USER`), and log in anew"
            )
        except OSError as error:
            return (
                f"{folder / name} cannot be opened ({reason(error)}): `sudo modprobe neuron` loads "
                "its driver, of the package aws-neuronx-dkms"
            )
    return ""


def generation() -> str | None:
    """The target by the instance type; None where that says none (inf2 computes as trn1)."""
    try:
        name = _PRODUCT_NAME.read_text().strip()
    except OSError:
        return None
    family = name.partition(".")[0]
    if family.startswith("inf2"):
        return "trn1"
    return next((target for target in TARGETS if family.startswith(target)), None)


class TrainiumDevice:
    """One NeuronCore. `sdk_paths` are extra folders to import the SDK from."""

    simulated = False
    rounding = ROUNDING

    def __init__(
        self,
        core: int = 0,
        target: str = "trn1",
        *,
        profiler: str | None = None,
        sdk_paths: Sequence[str] = (),
        capture_seconds: float = CAPTURE_SECONDS,
    ) -> None:
        self.core = core
        self.target = target
        self.name = f"{target} core {core}"
        self.profiler = profiler or neuron_profile.executable() or "neuron-profile"
        self.sdk_paths = tuple(sdk_paths)
        self.capture_seconds = capture_seconds

    def environment(self) -> dict[str, str]:
        """The driver's and compiler's settings: fp32 stays fp32, one core, the compiled file is kept and
        knows the kernel's lines (SDK 2.32, "Profile a NKI Kernel" and "Neuron Explorer profile files")."""
        return {
            "NEURON_CC_FLAGS": "--auto-cast=none",
            "NEURON_FRAMEWORK_DEBUG": "1",
            "NEURON_LOGICAL_NC_CONFIG": "1",
            "NEURON_PLATFORM_TARGET_OVERRIDE": self.target,
            "NEURON_RT_NUM_CORES": "1",
            "NEURON_RT_VISIBLE_CORES": str(self.core),
            "NKI_DEBUG_INFO": "True",
        }

    def compile(
        self,
        kernel_path: str,
        arguments: Sequence[KernelArgument],
        *,
        seconds: float = TRACE_SECONDS,
    ) -> TrainiumExecutable:
        """Compile the kernel by running it once on ones."""
        executable = TrainiumExecutable(self, str(Path(kernel_path).resolve()))
        ones = [
            np.ones(argument.shape, dtypes.FORMATS.get(argument.dtype, argument.dtype))
            if isinstance(argument, TensorArgument)
            else argument
            for argument in arguments
        ]
        try:
            executable.call(ones, Status.COMPILE_ERROR, seconds)
            if not executable.compiled.is_file():
                raise KernelFailure(Status.COMPILE_ERROR, "the compiler left no NEFF file")
        except KernelFailure as failure:
            failure.isolation = executable.isolation
            executable.close()
            raise
        except BaseException:
            executable.close()
            raise
        return executable


class TrainiumExecutable(CompiledKernel):
    """A kernel, its compiled file, and the folder that holds what passes to and from the child.

    Nothing but its runs tells anything of it: its file is binary, and compiling again takes minutes.
    """

    def __init__(self, device: TrainiumDevice, kernel: str) -> None:
        self.device = device
        self.kernel = kernel
        self._stack = contextlib.ExitStack()
        self.folder = self._stack.enter_context(scratch_folder())
        self.isolation: tuple[str, ...] = ()

    @property
    def compiled(self) -> Path:
        """The NEFF file that the timing runs."""
        return self.folder / "kernel.neff"

    def run(self, arrays: Sequence[object], shuffle: int | None = None) -> tuple[np.ndarray, ...]:
        """The outputs of one run on the core, which has its own order of things."""
        return self.call(arrays, Status.RUN_ERROR, DEVICE_SECONDS)

    def call(
        self, arrays: Sequence[object], failing: Status, seconds: float
    ) -> tuple[np.ndarray, ...]:
        """Compile and run in a child; `failing` is the status of an error in it."""
        work = Path(tempfile.mkdtemp(dir=self.folder))
        names = [_save(work, index, value) for index, value in enumerate(arrays)]
        payload = {
            "kernel": self.kernel,
            "imports": kernel_folder(Path(self.kernel)).as_json(),
            "arguments": names,
            "folder": str(work),
            "sdk_paths": self.device.sdk_paths,
        }
        outcome = run(
            "accelopt.kernels.nki.devices.baremetal:run_job",
            payload,
            policy=NEURON.allow(Policy(readable=(self.kernel, *self.device.sdk_paths))),
            limits=Limits(
                seconds=seconds,
                memory_bytes=MEMORY_BYTES,
                address_space=False,
                disk_bytes=DISK_BYTES,
            ),
            environment=self.device.environment(),
            scratch=work,
        )
        self.isolation = outcome.isolation
        try:
            outputs = _outputs(outcome, work, failing, seconds)
            if not self.compiled.exists() and _plain_file(work / "kernel.neff"):
                (work / "kernel.neff").rename(self.compiled)
            return outputs
        finally:
            remove(work)

    def measure(self, timings: Timings = Timings()) -> TimedRuns:  # noqa: B008  (immutable)
        """Time the compiled file: each counted run is captured and summarised by the profiler."""
        profiler = self._profiler()
        try:
            for _ in range(timings.warmup):
                profiler.capture(self.compiled, self.folder / "warmup.ntff")
            summaries = [
                self._summary(
                    profiler, profiler.capture(self.compiled, self.folder / f"{run}.ntff")
                )
                for run in range(timings.counted)
            ]
        except neuron_profile.ProfilerError as error:
            raise KernelFailure(Status.BENCHMARK_ERROR, str(error)) from error
        runs = tuple(summary["total_time"] * 1e3 for summary in summaries)
        middle = sorted(range(len(runs)), key=runs.__getitem__)[len(runs) // 2]
        return TimedRuns(runs, summaries[middle])

    def _profiler(self) -> neuron_profile.Profiler:
        return neuron_profile.Profiler(
            self.device.profiler,
            {**os.environ, **self.device.environment()},
            self.device.capture_seconds,
        )

    def _summary(self, profiler: neuron_profile.Profiler, trace: Path) -> dict[str, float]:
        """The summary of a trace; where the profiler does not write it as JSON, that of its tables."""
        try:
            return profiler.summarise(self.compiled, trace)
        except neuron_profile.ProfilerError as error:
            if not profiler.writes_tables:
                raise
            folder = trace.with_suffix(".tables")
            try:
                return dict(read_profile(profiler.export(self.compiled, trace, folder)).summary)
            except (neuron_profile.ProfilerError, AcceloptError) as second:
                raise neuron_profile.ProfilerError(f"{error}; its tables: {second}") from second
            finally:
                remove(folder)

    def profile(self, folder: Path) -> Path:
        """A profile of the compiled file's second run, for `read_profile`, with the compiled file and the
        trace in `folder`. Raises KernelFailure."""
        profiler = self._profiler()
        try:
            folder.mkdir(parents=True, exist_ok=True)
            neff = Path(shutil.copy(self.compiled, folder / "kernel.neff"))
            profiler.capture(neff, folder / "kernel.ntff")
            trace = profiler.capture(neff, folder / "kernel.ntff")
            return profiler.export(neff, trace, folder / "tables")
        except neuron_profile.ProfilerError as error:
            raise KernelFailure(Status.BENCHMARK_ERROR, str(error)) from error
        except OSError as error:
            said = f"{error.filename or folder}: {reason(error)}"
            raise KernelFailure(Status.BENCHMARK_ERROR, said) from error

    def close(self) -> None:
        """Remove the folder."""
        self._stack.close()


def _save(folder: Path, index: int, value: object) -> object:
    """Arrays go to the child as files, plain values as they are."""
    if not isinstance(value, np.ndarray):
        return arguments_to_json([value])[0]  # type: ignore[list-item]
    return save_array(folder, f"input_{index}", value)


def _plain_file(path: Path) -> bool:
    """True for a file, and neither a link to one nor a pipe that nobody writes to."""
    return path.is_file() and not path.is_symlink()


def _outputs(
    outcome: ChildOutcome, folder: Path, failing: Status, seconds: float
) -> tuple[np.ndarray, ...]:
    doing = "compiling the kernel" if failing is Status.COMPILE_ERROR else "running the kernel"
    if (early := ended_early(outcome, seconds, doing)) is not None:
        raise early
    message = read_message(outcome.result.partition(b"\n")[0])
    if message is None:
        raise KernelFailure(
            Status.CRASH,
            f"{doing}: the process ended with exit code {outcome.exit_code} and left no result",
            outcome.output,
        )
    if "failed" in message:
        raise KernelFailure(failing, str(message["failed"]), str(message.get("traceback", "")))
    told = message.get("outputs")
    if not isinstance(told, list) or len(told) > 64 or not all(isinstance(x, dict) for x in told):
        raise KernelFailure(Status.CRASH, "the kernel's process left a damaged result")
    try:
        return tuple(
            load_array(folder, {**one, "file": f"output_{index}.npy"})
            for index, one in enumerate(told)
        )
    except ValueError as error:
        raise KernelFailure(
            Status.CRASH, f"the kernel's process left a damaged output: {error}"
        ) from error
