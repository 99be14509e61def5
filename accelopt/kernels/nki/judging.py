"""One kernel and one reference: compile, check, time."""

from __future__ import annotations

import contextlib
import functools
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from accelopt.caches import default_cache, trials_folder
from accelopt.errors import ConfigError
from accelopt.evaluation import (
    Check,
    Confirmation,
    Evaluation,
    EvaluationRequest,
    Exactness,
    Profile,
    Scrutiny,
    Status,
)
from accelopt.hardware import TARGETS
from accelopt.kernels.measurement import (
    Timing,
    confirm_winner,
    gain_between,
    time_until_stable,
    without_gain,
)
from accelopt.kernels.nki import devices
from accelopt.kernels.nki import real_core_checks as physics
from accelopt.kernels.nki.arguments import argument_of, shaped_outputs
from accelopt.kernels.nki.devices import (
    BACKWARDS,
    CompiledKernel,
    Device,
    KernelArgument,
    KernelFailure,
    LowPrecision,
    TensorArgument,
    Timings,
)
from accelopt.kernels.nki.referee import unread_inputs as leftovers
from accelopt.kernels.nki.referee.comparison import GATE, KNOWN_TO, PER_ROW, WHOLE, Gate, usual_size
from accelopt.kernels.nki.referee.precision import Precision, contract, in_single
from accelopt.kernels.nki.referee.reference import Reference
from accelopt.kernels.nki.referee.source import PUBLISHED_PRECISION_MESSAGE
from accelopt.kernels.nki.referee.text_rules import check_text, remedy
from accelopt.kernels.nki.referee.trials import (
    CANCELLING,
    END,
    EVERY,
    FAR,
    FEW_BITS,
    FLAGS,
    HIDDEN,
    NEGATIVE,
    NONE,
    NOT_FINITE,
    ONE,
    ONE_SIDED,
    OTHER_SHAPE,
    POSITIVE,
    PUBLIC,
    SIGNS,
    SMALL,
    STRESS,
    SWEEP,
    UNUSED,
    Trial,
    TrialName,
    TrialStore,
    trial_on,
)
from accelopt.kernels.nki.referee.uses import Uses
from accelopt.kernels.nki.referee.variation import (
    DEPENDENT,
    LEAST,
    LEFT_CHANGED,
    ORDER,
    hidden_order,
    other_shapes,
)
from accelopt.sandbox.linux_calls import freed_memory_kept
from accelopt.sandbox.progress import note
from accelopt.sim.dtypes import name_of

NO_OTHER_SHAPE = f"for these shapes: none has a dimension from {LEAST} on, and no other was tried"
TAKES_NONE = "for these shapes: the reference takes none of the others that were tried, {}"
EXCUSED = (
    "not counted, for each element is within what rounding may make of it, as the reference itself "
    "rounds to a format with fewer bits: {}"
)
BEYOND_PUBLISHED = "more than the published bound, as rounding in float32 is for these inputs"
TRACED_AGAIN = 2  # times, at another date, in another home, with other hashes

# Cheap tells first: most wrong kernels fall at the first seed or at the stress inputs.
_HALVES = (
    (PUBLIC[0], STRESS, ONE_SIDED, SWEEP, END, EVERY, NEGATIVE, POSITIVE),
    (PUBLIC[1], HIDDEN, FEW_BITS, SMALL, FAR, NOT_FINITE, CANCELLING, NONE, ONE, *PUBLIC[2:]),
)
_TRIALS = {
    Scrutiny.PUBLISHED: PUBLIC,
    Scrutiny.QUICK: (PUBLIC[0], STRESS),
    Scrutiny.FULL: (*_HALVES[0], *_HALVES[1]),
}


def trial_store(cache: Path | str | None = None) -> TrialStore:
    """The trials under a cache folder, the user's own by default."""
    return TrialStore(trials_folder(cache or default_cache()))


def _device(request: EvaluationRequest) -> Device:
    return devices.choose(request.target, request.core, request.constants, request.compiler)


def evaluate(
    request: EvaluationRequest, device: Device | None = None, trials: TrialStore | None = None
) -> Evaluation:
    """Compile, check and time one kernel. Whatever is wrong with it or its reference is in the result.

    Call it in a child process (`workers`) when memory and time must be limited; the kernel's own
    Python runs in a child in any case.
    """
    started = time.monotonic()
    device = device or _device(request)
    trials = trials or trial_store()
    evaluation = _evaluated(request, device, trials)
    # A cache condemns nobody: what failed on damaged trials is judged by others.
    if evaluation.status is not Status.CORRECT and evaluation.checks:
        with contextlib.suppress(ConfigError):
            if trials.discard_damaged(Reference(request.task)):
                evaluation = _evaluated(request, device, trials)
    return evaluation.model_copy(update={"seconds": time.monotonic() - started})


def _evaluated(request: EvaluationRequest, device: Device, trials: TrialStore) -> Evaluation:
    try:
        run = _Run(request, device, trials)
        with freed_memory_kept(), ExitStack() as stack:
            try:
                return run.evaluate(stack)
            except KernelFailure as failure:
                return run.failed(failure)
    except ConfigError as error:
        return Evaluation(status=Status.BASELINE_FAILED, message=str(error))


def confirm(
    winner: EvaluationRequest,
    parent: EvaluationRequest,
    device: Device | None = None,
    trials: TrialStore | None = None,
) -> Confirmation:
    """Measure two correct kernels of one problem again, alternating, before one is declared faster.

    A kernel that no longer compiles or runs is in the message, not an exception.
    """
    device = device or _device(winner)
    try:
        with ExitStack() as stack:
            first, second = (
                _Run(request, device, trials or trial_store()).executable(stack)
                for request in (winner, parent)
            )
            timings = Timings(warmup=1, counted=3)
            found = confirm_winner(
                lambda: first.measure(timings).runs_ms, lambda: second.measure(timings).runs_ms
            )
            if not found.confirmed:
                return found
            ours = statistics.median(found.winner_ms), first.choices()
            theirs = statistics.median(found.parent_ms), second.choices()
            core = TARGETS[device.target]
            known = device.simulated and core.was_measured
            between = gain_between(ours, theirs, core.gain_spread) if known else None
            said = {"depends_on": without_gain(ours, theirs), "between": between}
            return found.model_copy(update=said)
    except KernelFailure as failure:
        return Confirmation(confirmed=False, message=f"{failure.status.value}: {failure.message}")


class _Run:
    """One evaluation, step by step; a step that finds a fault raises KernelFailure."""

    def __init__(self, request: EvaluationRequest, device: Device, trials: TrialStore) -> None:
        self.request = request
        self.device = device
        self.trials = trials
        half = request.half
        self.names = _TRIALS[request.scrutiny] if half is None else _HALVES[half]
        self.reference = Reference(request.task)
        self.checks: list[Check] = []
        self.notes: list[str] = []
        self.narrow: list[LowPrecision] = []  # for which it is refused, should they lose something
        self.isolation: tuple[str, ...] = ()
        self.holds_for = ""
        self.exactness: tuple[Exactness, ...] = ()

    def evaluate(self, stack: ExitStack) -> Evaluation:
        first = self._trial(self.names[0])
        self._read_source()
        executable = self.executable(stack)
        self._check_precision(executable)
        self._check_independence(executable)
        self._check_arguments(executable)
        for name in self.names:
            self._check_trial(name, executable, first, stack)
        physics.check_accuracy(executable.inexact(), self.checks, self.device.target)
        if self.request.scrutiny is Scrutiny.FULL and self.request.half != 0:
            self._check_leftovers(executable)
            self._check_constancy(executable)
            self._try_other_arguments(stack)
            self._try_another_shape(stack)
        if self.request.half == 1:
            return self._evaluation(Status.CORRECT)
        note("timing the kernel")
        timing = time_until_stable(
            lambda: executable.measure(Timings()), perf_tol=self.request.perf_tol
        )
        written = physics.least_written(first)
        physics.check_latency(timing.latency_ms, written, self.request.least_ms, self.device.target)
        return self._evaluation(Status.CORRECT, profile=self._profile(timing))

    def executable(self, stack: ExitStack) -> CompiledKernel:
        """The compiled kernel, closed with `stack`."""
        first = self._trial(self.names[0])
        executable = self._compiled(self._arguments(first.inputs), stack)
        executable.time_on(lambda: self.reference.kernel_inputs(first.inputs))
        self.isolation = executable.isolation
        return executable

    def _compiled(self, arguments: list[KernelArgument], stack: ExitStack) -> CompiledKernel:
        note("tracing the kernel")
        seconds = self.request.compile_seconds
        executable = self.device.compile(self.request.kernel, arguments, seconds=seconds)
        stack.callback(executable.close)
        return executable

    def _for_arguments(
        self, executable: CompiledKernel, first: Trial, trial: Trial, stack: ExitStack
    ) -> CompiledKernel | None:
        """The kernel for a trial's plain numbers, which are part of what is compiled. None for one
        that says itself that it does not take them."""
        arguments = self._arguments(trial.inputs)
        if arguments == self._arguments(first.inputs):
            return executable
        try:
            return self._compiled(arguments, stack)
        except KernelFailure as failure:
            if failure.status is not Status.COMPILE_ERROR:
                raise
            given = [a for a in self._arguments(first.inputs) if isinstance(a, float)]
            self.notes.append(
                f"right only for the numbers {', '.join(map(repr, given))}: the kernel refuses "
                f"others ({failure.message})"
            )
            return None

    def failed(self, failure: KernelFailure) -> Evaluation:
        self.isolation = self.isolation or failure.isolation
        return self._evaluation(
            failure.status, message=failure.message, traceback=failure.traceback
        )

    def _evaluation(
        self,
        status: Status,
        *,
        message: str = "",
        traceback: str = "",
        profile: Profile | None = None,
    ) -> Evaluation:
        return Evaluation(
            status=status,
            message=message,
            traceback=traceback,
            profile=profile,
            untimed=status is Status.CORRECT and profile is None,
            checks=tuple(self.checks),
            notes=tuple(self.notes),
            holds_for=self.holds_for,
            exactness=self.exactness,
            isolation=", ".join(self.isolation),
        )

    def _trial(self, name: TrialName) -> Trial:
        trial = self.trials.get(self.reference, name)
        assert trial is not None, f"public trial {name} is always made"
        return trial

    def _check_trial(
        self, name: TrialName, executable: CompiledKernel, first: Trial, stack: ExitStack
    ) -> None:
        note(f"judging by {name}")
        trial = self.trials.get(self.reference, name, self.precision)
        if name == PUBLIC[0] and self.request.scrutiny is not Scrutiny.PUBLISHED:
            with contextlib.suppress(
                ConfigError
            ):  # asked for when outputs, which are large, are judged
                self.trials.get(self.reference, STRESS, self.precision)
        if trial is not None:
            fitting = self._for_arguments(executable, first, trial, stack)
            if fitting is not None:
                self._check_numbers(fitting, trial)
        elif name in (STRESS, ONE_SIDED):  # the others do not arise for every problem
            self.notes.append(f"the reference is undefined on most of {name}: not judged")

    def _arguments(self, inputs: Sequence[Any]) -> list[KernelArgument]:
        return [argument_of(value) for value in self.reference.kernel_inputs(inputs)]

    def _read_source(self) -> None:
        """The rules that need nothing but the text."""
        published = self.request.scrutiny is Scrutiny.PUBLISHED
        precision = None if self.device.simulated else self.precision
        check_text(Path(self.request.kernel), precision, published=published)

    @functools.cached_property
    def precision(self) -> Precision:
        """What the kernel's inputs, the reference and the request allow."""
        inputs = self.reference.kernel_inputs(self._trial(self.names[0]).inputs)
        return contract(inputs, self.reference.precision, self.request.precision)

    def _check_precision(self, executable: CompiledKernel) -> None:
        """The formats that the compiled kernel really uses, but for those of results. What float32 in their place
        does not change, as a mask of zeros and ones, loses nothing: that is asked in each trial."""
        results = {name_of(form.dtype) for form in self._trial(self.names[0]).forms}
        published = self.request.scrutiny is Scrutiny.PUBLISHED
        allows = self.precision.allows

        def used(by: CompiledKernel, allowed: Callable[[str], bool]) -> list[LowPrecision]:
            narrow = (u for u in by.low_precision() if u.dtype not in results)
            return [use for use in narrow if not allowed(use.dtype)]

        uses = used(executable, allows if published else self.precision.rounds_to)
        if not uses:
            return
        named = any("float16" in use.dtype for use in uses)
        if published and (self.precision.formats or not named):
            self.notes.append(_narrow_words(uses))
            return
        single = None if published else executable.in_single(uses)
        left = uses if single is None else used(single, allows)
        if left:
            said = f"{PUBLISHED_PRECISION_MESSAGE} " if published else ""
            raise KernelFailure(Status.REFUSED, said + self._too_narrow(left))
        self.narrow = uses

    def _too_narrow(self, uses: Sequence[LowPrecision]) -> str:
        return _narrow_words(uses) + remedy(self.precision, [use.dtype for use in uses])

    def _check_independence(self, executable: CompiledKernel) -> None:
        """What iterations that may run in any order need of each other."""
        found = executable.dependences()
        if found and self.request.scrutiny is not Scrutiny.PUBLISHED:
            raise KernelFailure(Status.REFUSED, DEPENDENT.format("; ".join(found)))

    def _check_arguments(self, executable: CompiledKernel) -> None:
        """What the kernel leaves in the arrays of its caller is among its results, which are judged."""
        left = executable.left_changed()
        if left and self.request.scrutiny is not Scrutiny.PUBLISHED:
            raise KernelFailure(Status.REFUSED, LEFT_CHANGED.format("; ".join(left)))

    def _try_other_arguments(self, stack: ExitStack) -> None:
        """Signs and flags that nobody draws, as far as the reference takes them."""
        for name in (SIGNS, FLAGS):
            trial = self.trials.get(self.reference, name, self.precision)
            if trial is not None:
                arguments = self._arguments(trial.inputs)
                plain = (repr(a) for a in arguments if not isinstance(a, TensorArgument))
                self._try(arguments, name, ", ".join(plain), "for these plain arguments", stack)

    def _try_another_shape(self, stack: ExitStack) -> None:
        """The kernel was asked for the shapes of its inputs, and may take others. Most do not, and
        then nothing is worked out for it: which the reference takes is asked for the rest alone."""
        self.holds_for, refused = "these shapes", ""
        note(f"trying {OTHER_SHAPE}")
        for inputs in other_shapes(self._trial(self.names[0]).inputs):
            try:
                arguments = self._arguments(inputs)
                self._compiled(arguments, stack)
            except ConfigError:  # which its transform does not take
                continue
            except KernelFailure as failure:
                refused = refused or _refusal("for these shapes", _shapes(arguments), failure)
                if failure.status is Status.COMPILE_ERROR:
                    continue
            break
        else:
            self.notes.append(refused or self._none_taken())
            return
        other = self.trials.get(self.reference, OTHER_SHAPE)
        if other is None:
            self.notes.append(self._none_taken())
            return
        arguments = self._arguments(other.inputs)
        if self._try(arguments, OTHER_SHAPE, _shapes(arguments), "for these shapes", stack):
            self.holds_for = "any"

    def _none_taken(self) -> str:
        """Why no other shape was tried with success: what the reference refused, or that there is none."""
        tried = [
            ", ".join(str(value.shape) for value in inputs if isinstance(value, np.ndarray))
            for inputs in other_shapes(self._trial(self.names[0]).inputs)
        ]
        return TAKES_NONE.format("; ".join(tried)) if tried else NO_OTHER_SHAPE

    def _try(
        self,
        arguments: list[KernelArgument],
        name: TrialName,
        given: str,
        where: str,
        stack: ExitStack,
    ) -> bool:
        """Whether the kernel is right for other arguments; a note says what it is where not."""
        note(f"trying {name}")
        checks = len(self.checks)
        try:
            executable = self._compiled(arguments, stack)
            trial = self.trials.get(self.reference, name, self.precision)
            assert trial is not None, f"{name} was found to be possible"
            self._judge_run(trial, executable)
        except KernelFailure as failure:
            del self.checks[checks:]
            self.notes.append(_refusal(where, given, failure))
            return False
        return True

    def _check_leftovers(self, executable: CompiledKernel) -> None:
        """Numbers do not show a term of very many, an element that is seldom the largest: where the
        kernel leaves some out, it is tried with inputs in which they decide."""
        note("looking for what the kernel leaves out")
        unused = executable.unused()
        drawn = self.trials.get(self.reference, HIDDEN, self.precision)
        if drawn is None or all(left is None for left in unused):
            return
        inputs = leftovers.deciding(self.reference, drawn.inputs, unused)
        if inputs is None:
            return
        try:
            trial = trial_on(self.reference, UNUSED, inputs, self.precision)
            self._judge_run(trial, executable)
        except KernelFailure as failure:
            said = f"{failure.message}; {leftovers.words(unused)}"
            raise KernelFailure(failure.status, said) from failure

    def _check_constancy(self, executable: CompiledKernel) -> None:
        """What is judged is what everybody gets: the same program under other conditions."""
        note("tracing the kernel again under other conditions")
        arguments = self._arguments(self._trial(self.names[0]).inputs)
        for again in range(1, TRACED_AGAIN + 1):
            if not executable.is_made_again(self.request.kernel, arguments, again):
                raise KernelFailure(
                    Status.REFUSED,
                    "the kernel's Python makes another program when it is traced or called again (it may "
                    "keep something from call to call): what is judged once says nothing of the next",
                )

    def _check_numbers(self, executable: CompiledKernel, trial: Trial) -> None:
        """Hidden trials run in other orders, the first backwards and the others in ones that nobody
        can know either: nl.affine_range promises that its iterations may run in any order, and a core
        takes the kernel at its word."""
        if trial.name in PUBLIC:
            self._judge_run(trial, executable)
            return
        checks = len(self.checks)
        inputs = self.reference.kernel_inputs(trial.inputs)
        order = BACKWARDS if trial.name == STRESS else hidden_order(inputs)
        try:
            return self._judge_run(trial, executable, order)
        except KernelFailure as failure:
            failed = failure.with_traceback(None)  # which holds what it ran on
        shuffled = self.checks[checks:]
        del self.checks[checks:]
        self._judge_run(trial, executable)  # raises when the order is not to blame
        self.checks += shuffled
        raise KernelFailure(failed.status, f"{failed.message}; {ORDER}")

    def _judge_run(
        self, trial: Trial, executable: CompiledKernel, shuffle: int | None = None
    ) -> None:
        inputs = self.reference.kernel_inputs(trial.inputs)

        def given_by(other: CompiledKernel | None) -> Sequence[Any] | None:
            if other is None:
                return None
            return shaped_outputs(self.reference, other.run(inputs), trial.forms)

        in_double = functools.cache(lambda: given_by(executable.in_double()))

        @functools.cache
        def unrounded(double: bool) -> Sequence[Any] | None:
            single = executable.unrounded()
            return given_by(single.in_double() if double and single else single)

        outputs = executable.run(inputs, shuffle)

        def loses(*places: LowPrecision) -> bool:
            single = executable.in_single(places)
            others = () if single is None else single.run(inputs, shuffle)
            return not (len(outputs) == len(others) and all(map(_same_bytes, outputs, others)))

        if self.narrow and loses(*self.narrow):
            places = [use for use in self.narrow if loses(use)]  # or several together
            raise KernelFailure(Status.REFUSED, self._too_narrow(places or self.narrow))
        self._judge(trial, outputs, in_double, unrounded)

    def _judge(
        self,
        trial: Trial,
        outputs: tuple[np.ndarray, ...],
        in_double: Callable[[], Sequence[Any] | None],
        unrounded: Callable[[bool], Sequence[Any] | None],
    ) -> None:
        transformed = shaped_outputs(self.reference, outputs, trial.forms)
        request, rounding = self.request, self.device.rounding
        agreement = self.reference.agreement
        judge = Gate(
            request.rel_tol, request.scrutiny, rounding, self.precision, agreement, request.baseline
        )._replace(in_double=in_double, unrounded=unrounded, usual=self._usual)
        judge = judge._replace(mirrored=functools.cache(lambda: trial.mirrored(self.reference)))
        judge = judge._replace(narrow_on_the_way=lambda: self._uses(trial).narrow_on_the_way)
        judge = judge._replace(summed=self._summed)
        trial = trial.beside(self.reference, transformed)
        verdict = judge.judge(trial, outputs, transformed)
        if (trial.projections or trial.remade) and verdict.status is not Status.CORRECT:
            trial = trial.in_full(self.reference)
            verdict = judge.judge(trial, outputs, transformed)
        if not trial.exact and self._in_steps(trial, verdict.checks[-1]):
            trial = trial_on(self.reference, trial.name, trial.inputs, self.precision)
            failed, verdict = verdict.checks[-1], judge.judge(trial, outputs, transformed)
            if verdict.status is Status.CORRECT and failed.name != WHOLE:
                self.notes.append(EXCUSED.format(failed))
        told = (c for c in verdict.checks if c.name == GATE and c.passed and KNOWN_TO in c.where)
        if not any(BEYOND_PUBLISHED in note for note in self.notes):
            self.notes += [f"{BEYOND_PUBLISHED}: {check}" for check in told]
        self.checks += verdict.checks
        self.exactness = self.exactness or verdict.exactness
        self.notes += [said for said in verdict.undefined if said not in self.notes]
        if verdict.status is not Status.CORRECT:
            raise KernelFailure(verdict.status, verdict.message)
        others = self.trials.of_other_rows(self.reference, trial, transformed, self.precision)
        if others is not None:
            self._judge(others, outputs, in_double, unrounded)

    def _in_steps(self, trial: Trial, check: Check) -> bool:
        """True where a check failed and rounding may have decided between two whole numbers, or two of a format
        with fewer bits, as intervals say."""
        if check.passed or check.name == WHOLE:
            return not check.passed
        bounds = self.request.scrutiny is not Scrutiny.PUBLISHED and check.name in (GATE, PER_ROW)
        return bounds and trial.name != CANCELLING and self._uses(trial).steps

    def _uses(self, trial: Trial) -> Uses:
        return self.reference.uses([*map(in_single, trial.inputs)])

    def _summed(self) -> tuple[float, ...]:
        """The relative error of each output in float32, on ordinary hidden inputs; none where it is not known."""
        hidden = self.trials.get(self.reference, HIDDEN, self.precision)
        return hidden.summed if hidden else ()

    @functools.cached_property
    def _usual(self) -> tuple[float, ...]:
        """How large the elements of each output are as a rule."""
        first = self._trial(self.names[0])
        return tuple(map(usual_size, first.expected, first.sizes))

    def _profile(self, timing: Timing) -> Profile:
        if not timing.stable:
            self.notes.append(f"unstable timing: the runs spread by {timing.spread:.1%}")
        metrics = timing.metrics
        fields = self.request.save_fields
        return Profile(
            latency=timing.latency_ms,
            min_ms=min(timing.runs_ms),
            max_ms=max(timing.runs_ms),
            rel_diffs=timing.spread,
            metrics={name: metrics[name] for name in fields if name in metrics},
            target=self.device.target,
            simulated=self.device.simulated,
            compiler=timing.compiler,
            stable=timing.stable,
            interval_ms=(timing.interval.low, timing.interval.high),
        )


def _narrow_words(uses: Sequence[LowPrecision]) -> str:
    """The formats, each with its first place."""
    first: dict[str, str] = {}
    for use in uses:
        first.setdefault(use.dtype, f"{use.dtype} ({use.where})")
    return "low precision in the data path: " + "; ".join(first.values())


def _same_bytes(one: np.ndarray, other: np.ndarray) -> bool:
    bits = f"u{one.itemsize}"
    return one.dtype == other.dtype and np.array_equal(one.view(bits), other.view(bits))


def _shapes(arguments: Sequence[KernelArgument]) -> str:
    return ", ".join(str(a.shape) for a in arguments if isinstance(a, TensorArgument))


def _refusal(where: str, given: str, failure: KernelFailure) -> str:
    what = "refuses" if failure.status is Status.COMPILE_ERROR else "is wrong for"
    return f"{where}: it {what} {given} ({failure.message})"
