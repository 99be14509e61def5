"""A NeuronCore on the CPU, as a device.

A kernel's Python runs in a confined child that never sees data and leaves a Program. This process
checks the Program, executes it and predicts its timing: no line of the kernel's own code runs here.
"""

from __future__ import annotations

import math
import traceback
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from accelopt.errors import ConfigError, internal_fault, quoted
from accelopt.evaluation import Status
from accelopt.hardware import TARGETS, calibrated
from accelopt.kernels.measurement import TimedRuns
from accelopt.kernels.nki.devices.kernel_folder import files_of, kernel_folder
from accelopt.kernels.nki.devices.protocol import (
    BACKWARDS,
    Inexactness,
    KernelArgument,
    KernelFailure,
    LowPrecision,
    TensorArgument,
    Timings,
)
from accelopt.kernels.nki.devices.tracing import arguments_to_json, read_message, unfinished_line
from accelopt.sandbox import ChildOutcome, Ending, Limits, Policy, Start, clean_server, run
from accelopt.sim import compute, dtypes, rules, serial, timing, unused_inputs
from accelopt.sim.compute.analysis.other_formats import in_double, in_single, unrounded
from accelopt.sim.compute.executor import Order
from accelopt.sim.compute.trips import counted
from accelopt.sim.errors import NOWHERE, KernelError, SourceLine
from accelopt.sim.independence import dependences
from accelopt.sim.program import Instruction, Program, Tensor
from accelopt.sim.standin import ALIASES, STANDALONE
from accelopt.time_limits import START_SECONDS, TRACE_SECONDS

TRACE_MEMORY_BYTES = 4 << 30
PROGRAM_BYTES = 512 << 20

WIDE = {dtypes.name_of(dtypes.FLOAT32)}


class Survey(NamedTuple):
    """Everything that tracing a kernel says of it. `program` is there when the trace came to its
    end, and lacks what broke a rule; otherwise `failure` says what stopped it, unless a violation
    did. `output` is what the kernel's Python printed."""

    program: Program | None
    violations: tuple[KernelError, ...]
    failure: str
    output: str
    isolation: tuple[str, ...]


TRACING = (
    "accelopt.kernels.nki.devices.tracing",
    "accelopt.kernels.nki.devices.kernel_file",
    "accelopt.sim.dialects.dialect",
    "accelopt.sim.dialects.neuronxcc.kernel",
    "accelopt.sim.standin",
    *sorted({*ALIASES.values(), *STANDALONE.values()}),
    "ml_dtypes",
)
"""What a child has imported when it is ready to trace kernels."""
WARM = ("accelopt.kernels.nki.inspection", "accelopt.kernels.nki.jobs", *TRACING)
"""What a process has imported when it is ready to inspect kernels and to judge them."""


class SimulatedDevice:
    """One simulated NeuronCore of generation `target`.

    Kernels see what the process holds that traces them: by default a fork of `clean_server`. `start` may
    be `sandbox.fork` only where this process holds no data: no inputs, no outputs, no secret. `constants` are a calibrated
    machine's, `compiler` is the version of the front end, by default that of a kernel's dialect, `version` that of
    `nki` which kernels are said to be for.
    """

    simulated = True
    rounding = 1.0

    def __init__(
        self,
        target: str = "trn1",
        start: Start | None = None,
        constants: Mapping[str, float] | None = None,
        compiler: str = "",
        version: str = "",
    ) -> None:
        if target not in TARGETS:
            raise ValueError(f"no simulated target {target}; there are {', '.join(TARGETS)}")
        self.target = target
        self.core = calibrated(target, constants)
        self.compiler = compiler
        self.version = version
        self.start = start or clean_server(TRACING).start
        self.name = f"simulated {target}"

    def compile(
        self,
        kernel_path: str,
        arguments: Sequence[KernelArgument],
        *,
        seconds: float = TRACE_SECONDS,
    ) -> SimulatedExecutable:
        """Trace the kernel in a child process and verify the Program it leaves."""
        kernel = str(Path(kernel_path).resolve())
        outcome = self._traced("trace_job", kernel, arguments_to_json(arguments), seconds)
        try:
            message, data = _answer(outcome, kernel, seconds)
            _refuse(message)
            program = _program(data, outcome, self.target, kernel)
            _check_arguments(program, arguments, outcome)
            _verify(program)
        except KernelFailure as failure:
            failure.isolation = outcome.isolation
            raise
        return SimulatedExecutable(program, outcome.isolation, self, data)

    def traced_again(
        self, kernel_path: str, arguments: Sequence[KernelArgument], again: int, seconds: float
    ) -> bytes:
        """The Program's bytes as the kernel leaves them at another date, in another home, in an
        interpreter of its own."""
        kernel = str(Path(kernel_path).resolve())
        given = arguments_to_json(arguments)
        start = clean_server(TRACING, again).start
        outcome = self._traced("trace_job", kernel, given, seconds, again, start)
        message, data = _answer(outcome, kernel, seconds)
        _refuse(message)
        return data

    def survey(
        self,
        kernel_path: str,
        arguments: Sequence[KernelArgument] | None,
        *,
        seconds: float = TRACE_SECONDS,
    ) -> Survey:
        """Trace the kernel for every rule that it breaks, not only the first. Without `arguments`
        its annotations tell them. Raises KernelFailure where tracing comes to no end."""
        kernel = str(Path(kernel_path).resolve())
        wanted = None if arguments is None else arguments_to_json(arguments)
        outcome = self._traced("survey_job", kernel, wanted, seconds)
        message, data = _answer(outcome, kernel, seconds)
        if message.get("unknown_shapes"):
            raise ConfigError(str(message["failed"]))
        try:
            _refuse_fault(message)
            told = message["violations"]
            files = files_of(Path(kernel))
            violations = [_violation(files, *row) for row in told]  # type: ignore[attr-defined]
        except (KeyError, TypeError, ValueError) as error:
            raise _damaged(error, outcome) from error
        program = None
        if message.get("traced"):
            program = _program(data, outcome, self.target, kernel)
            broken = rules.verify(program)
            if violations:  # instructions are missing: only rules of single ones still speak
                broken = [e for e in broken if e.identifier != "uninitialised_read"]
            violations += broken
        failure = str(message.get("failed", ""))
        return Survey(program, tuple(violations), failure, outcome.output, outcome.isolation)

    def _traced(
        self,
        job: str,
        kernel: str,
        arguments: list[object] | None,
        seconds: float,
        again: int = 0,
        start: Start | None = None,
    ) -> ChildOutcome:
        return run(
            f"accelopt.kernels.nki.devices.tracing:{job}",
            {
                "kernel": kernel,
                "folder": kernel_folder(Path(kernel)).as_json(),
                "arguments": arguments,
                "target": self.target,
                "version": self.version,
                "seconds": seconds,
                "again": again,
            },
            policy=Policy(readable=(kernel,)),
            limits=Limits(
                seconds=seconds + START_SECONDS,
                memory_bytes=TRACE_MEMORY_BYTES,
                result_bytes=PROGRAM_BYTES,
            ),
            start=start or self.start,
        )


def _verify(program: Program) -> None:
    try:
        rules.check(program)
    except KernelError as error:
        raise KernelFailure(Status.COMPILE_ERROR, str(error)) from error


def _answer(outcome: ChildOutcome, kernel: str, seconds: float) -> tuple[dict[str, object], bytes]:
    """What a tracing child says and the bytes behind it; KernelFailure when it came to no end."""
    doing = "tracing the kernel"
    line = unfinished_line(outcome.result, kernel)
    if line is not None:
        where = f" and was at {kernel}:{line} then" if line else ""
        raise KernelFailure(
            Status.TIMEOUT, f"{doing} took longer than {seconds:g} s{where}", outcome.output
        )
    reason = ended_early(outcome, seconds, doing)
    if reason is not None:
        raise reason
    head, _, data = outcome.result.partition(b"\n")
    message = read_message(head)
    if message is None:
        raise KernelFailure(
            Status.CRASH,
            f"the kernel ended its process with exit code {outcome.exit_code} and left no program",
            outcome.output,
        )
    return message, data


def _refuse_fault(message: dict[str, object]) -> None:
    """Our own fault, which says nothing of the kernel."""
    if "internal" in message:
        raise KernelFailure(
            Status.FAULT, str(message["internal"]), str(message.get("traceback", ""))
        )


def _refuse(message: dict[str, object]) -> None:
    _refuse_fault(message)
    for key in ("refused", "failed"):
        if key in message:
            raise KernelFailure(
                Status.COMPILE_ERROR, str(message[key]), str(message.get("traceback", ""))
            )


def _program(data: bytes, outcome: ChildOutcome, target: str, kernel: str) -> Program:
    """What a child left. For which target it was traced is ours to say, not the child's."""
    try:
        program = serial.loads(data, kernel)
    except (serial.MalformedProgram, KernelError) as error:
        raise _damaged(error, outcome) from error
    if program.target != target:
        wrong = ValueError(f"it is for {program.target!r} where {target!r} was asked for")
        raise _damaged(wrong, outcome)
    return program


def _check_arguments(
    program: Program, arguments: Sequence[KernelArgument], outcome: ChildOutcome
) -> None:
    """The Program must be for the tensors that were asked for: it is timed with those it says."""
    wanted = [
        (tuple(argument.shape), dtypes.parse(argument.dtype))
        for argument in arguments
        if isinstance(argument, TensorArgument)
    ]
    if [(tensor.shape, tensor.dtype) for tensor in program.arguments] != wanted:
        raise _damaged(ValueError("it is for other arguments than were asked for"), outcome)


def _violation(files: Collection[str], *row: object) -> KernelError:
    """A KernelError from the texts, file and line that an untrusted child tells; a line of another
    file than these is nowhere."""
    identifier, message, mend, file, line = (" ".join(quoted(str(v)).split("\n")) for v in row)
    source = SourceLine(file, int(line)) if file in files else NOWHERE
    return KernelError(identifier, message, mend, source)


def _damaged(error: Exception, outcome: ChildOutcome) -> KernelFailure:
    words = f"the kernel's process left a damaged program: {error}"
    return KernelFailure(Status.CRASH, words, outcome.output)


def _own_fault(error: Exception, doing: str) -> KernelFailure:
    """What is said of an exception of our own: no verdict on the kernel."""
    return KernelFailure(Status.FAULT, internal_fault(error, doing), traceback.format_exc())


def ended_early(outcome: ChildOutcome, seconds: float, doing: str) -> KernelFailure | None:
    """The failure that an outcome is by itself, whatever the child wrote."""
    if outcome.ending is Ending.TIMEOUT:
        said = f"{doing} took longer than {seconds:g} s"
        return KernelFailure(Status.TIMEOUT, said, outcome.output)
    if outcome.ending is Ending.FINISHED and 0 <= outcome.exit_code <= 128:
        return None
    return KernelFailure(Status.CRASH, f"{doing}: the process {outcome.words}", outcome.output)


class SimulatedExecutable:
    """A verified Program; `data` are its bytes as `device` had them from the kernel's process, where
    it had them."""

    def __init__(
        self,
        program: Program,
        isolation: tuple[str, ...],
        device: SimulatedDevice | None = None,
        data: bytes = b"",
    ) -> None:
        self.program = program
        self.isolation = isolation
        self.device = device
        self.data = data
        self.core = device.core if device else TARGETS[program.target]
        self._inputs: list[np.ndarray] | None = None

    def time_on(self, arguments: Callable[[], Sequence[object]]) -> None:
        """Takes how often loops of the device run from these arguments, if there are such loops."""
        if any(instruction.opcode.ends_loop for _, instruction in self.program.walk()):
            self._inputs = tensors_of(arguments())

    def _profile(self) -> timing.KernelProfile:
        version = self.device.compiler if self.device else ""
        compiler = timing.Compiler.for_program(self.program, self.core, version)
        return timing.profile(counted(self.program, self._inputs), self.core, compiler)

    def is_made_again(
        self, kernel_path: str, arguments: Sequence[KernelArgument], again: int
    ) -> bool:
        """Whether tracing again, under other conditions, leaves the same Program, but that an allocator of
        the kernel which goes on from call to call may place all tiles further on."""
        if self.device is None:
            return True
        data = self.device.traced_again(kernel_path, arguments, again, TRACE_SECONDS)
        if data == self.data:
            return True
        try:
            again_made = serial.loads(data, kernel_path)
        except (serial.MalformedProgram, KernelError):
            return False
        return serial.dumps(again_made, moved=True) == serial.dumps(self.program, moved=True)

    def low_precision(self) -> tuple[LowPrecision, ...]:
        """Narrow formats of what instructions read and write, and of what they round to on the way,
        with each place. The arguments' own formats do not count, nor what nothing reads."""
        found = dict.fromkeys(self._formats())
        return tuple(one for one in found if "float" in one.dtype and one.dtype not in WIDE)

    def _formats(self) -> Iterator[LowPrecision]:
        arguments = set(self.program.arguments)
        instructions = [instruction for _, instruction in self.program.walk()]
        used = {access.tensor for one in instructions for access in one.inputs.values()}
        used |= {tensor for tensor in self.program.results if tensor is not None}
        for instruction in instructions:
            unread: set[str] = set()
            for access in (*instruction.outputs.values(), *instruction.inputs.values()):
                tensor = access.tensor
                if tensor not in used and tensor.placement is None:
                    unread.add(dtypes.name_of(access.dtype))
                elif access.dtype != tensor.dtype:  # the same bytes read in another format
                    name = dtypes.name_of(access.dtype)
                    yield LowPrecision(name, f"{tensor.name} at {instruction.source}")
                elif tensor not in arguments:
                    yield _place(tensor)
            yield from (
                found for found in _attribute_formats(instruction) if found.dtype not in unread
            )

    def inexact(self) -> tuple[Inexactness, ...]:
        """The Scalar engine's rsqrt, where the target is known to be less exact than IEEE fp32."""
        error = TARGETS[self.program.target].rsqrt_error
        if not error:
            return ()
        first = next(
            (
                instruction.source
                for _, instruction in self.program.walk()
                if instruction.attributes.get("op") == "rsqrt"
            ),
            None,
        )
        return () if first is None else (Inexactness(error, f"rsqrt at {first}"),)

    def dependences(self) -> tuple[str, ...]:
        """What the addresses prove of iterations and programs that need each other."""
        return tuple(map(str, dependences(self.program)))

    def left_changed(self) -> tuple[str, ...]:
        """What instructions write of it that is an argument and no result."""
        changed = self.program.changed_arguments().items()
        left = (pair for pair in changed if pair[0] not in self.program.results)
        return tuple(f"{tensor.name} at {line}" for tensor, line in left)

    def unused(self) -> tuple[np.ndarray | None, ...]:
        """What the addresses prove to reach no result."""
        return unused_inputs.unused(self.program)

    def run(self, arrays: Sequence[object], shuffle: int | None = None) -> tuple[np.ndarray, ...]:
        """Execute the Program on the arrays among the arguments. With `shuffle`, the iterations of
        every affine loop and the programs of a launch run in an order drawn from it."""
        order: Order = "program" if shuffle is None else "shuffled"
        if shuffle == BACKWARDS:
            order = "reversed"
        tensors = tensors_of(arrays)
        try:
            with np.errstate(all="ignore"):
                results = compute.execute(self.program, tensors, order=order, seed=shuffle or 0)
        except (KernelError, IndexError) as error:  # a run-time index ends a kernel as in Python
            raise KernelFailure(Status.RUN_ERROR, str(error.__cause__ or error)) from error
        except MemoryError as error:
            raise KernelFailure(
                Status.RUN_ERROR, "executing the kernel needs more memory than the limit"
            ) from error
        except Exception as error:  # no fault of the kernel, which the rules let pass
            raise _own_fault(error, "executing a program") from error
        if any(result is None for result in results):
            raise KernelFailure(Status.RUN_ERROR, "the kernel returns None instead of a tensor")
        return tuple(result for result in results if result is not None)

    def in_double(self) -> SimulatedExecutable:
        """With float64 in place of float32."""
        return SimulatedExecutable(in_double(self.program), self.isolation, self.device)

    def in_single(self, places: Collection[LowPrecision]) -> SimulatedExecutable:
        """With float32 in tensors of narrow formats, those in these places."""
        program = in_single(self.program, lambda tensor: _place(tensor) in places)
        return SimulatedExecutable(program, self.isolation, self.device)

    def unrounded(self) -> SimulatedExecutable | None:
        """With float32 in place of narrow formats, but for those of arguments; None where some stay, as of bits that are
        read in another format."""
        made = SimulatedExecutable(unrounded(self.program), self.isolation, self.device)
        return None if made.low_precision() else made

    def measure(self, timings: Timings = Timings()) -> TimedRuns:  # noqa: B008  (immutable)
        """The predicted latency; it does not vary, so one run stands for all."""
        try:
            profile = self._profile()
        except KernelError as error:
            raise KernelFailure(Status.BENCHMARK_ERROR, str(error)) from error
        except Exception as error:  # no fault of the kernel, which the rules let pass
            raise _own_fault(error, "timing a program") from error
        if not (math.isfinite(profile.latency_ms) and profile.latency_ms > 0):
            raise KernelFailure(
                Status.BENCHMARK_ERROR, f"no latency for this kernel: {profile.latency_ms} ms"
            )
        return TimedRuns((profile.latency_ms,), dict(profile.summary), compiler=profile.compiler)

    def choices(self) -> Mapping[str, float]:
        """The latency by every other outcome of what the compiler decides, of a kernel of no more
        than `timing.MOST_ASKED` instructions."""
        found = self._profile()
        if len(found.run.stream) > timing.MOST_ASKED:
            return {}
        return {one.question: one.latency_ms for one in timing.interval(found).scenarios}

    def close(self) -> None:
        """Nothing is held."""


def tensors_of(arrays: Sequence[object]) -> list[np.ndarray]:
    """Those of a kernel's arguments that a Program has as tensors."""
    return [array for array in arrays if isinstance(array, np.ndarray) and array.ndim]


def _place(tensor: Tensor) -> LowPrecision:
    return LowPrecision(dtypes.name_of(tensor.dtype), f"{tensor.name} at {tensor.source}")


def _attribute_formats(instruction: Instruction) -> Iterator[LowPrecision]:
    where = f"{instruction.opcode} at {instruction.source}"
    value = instruction.attributes.get("dtype")
    if isinstance(value, str):
        yield LowPrecision(dtypes.name_of(dtypes.parse(value)), where)
