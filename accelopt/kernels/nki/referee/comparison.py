"""Is this output right? The published gate, and the checks that make it sound.

Each check says what it measured, against which limit, and where it was worst.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from accelopt.evaluation import (
    LESS_EXACT,
    MOST_TIMES_LESS_EXACT,
    REL_TOL,
    Check,
    Exactness,
    Scrutiny,
    Status,
    exactness_words,
)
from accelopt.kernels.mean_error import MEAN, largest_mean
from accelopt.kernels.mean_error import NAME as MEAN_ERROR
from accelopt.kernels.nki.referee import pattern
from accelopt.kernels.nki.referee.agreement import INDEX_FORMATS, Agreement, Disagreement, tie_note
from accelopt.kernels.nki.referee.norms import NARROW as NARROW_ROW
from accelopt.kernels.nki.referee.norms import blocks, l2, l2_difference, row_norms, row_width
from accelopt.kernels.nki.referee.precision import NARROW, SINGLE, Precision, in_single, is_float
from accelopt.kernels.nki.referee.tolerance import (
    ARGUMENT_SLACK,
    BETWEEN,
    MOST_HIDDEN,
    SHOWS,
    SLACK,
    THERE,
    UNDERFLOW,
    UNIT_OF_EXACT,
    Exact,
    half_spacing,
)
from accelopt.kernels.nki.referee.trials import HIDDEN, NOT_FINITE, SWEEP, Trial, Update

# The widest bound that is published: honest rounding in fp32 needs no more.
WIDEST_PUBLISHED = 3e-5
# A row may be this many times worse than the whole output is allowed to be.
ROW_FACTOR = 10.0
# Where inputs make float32 less exact than the bound, so many times what it is off by is allowed.
ROOM, KNOWN_TO = MOST_TIMES_LESS_EXACT, ", which float32 gives to no more than"
# Rows much smaller than usual are judged on the usual scale: their value is cancellation.
SMALL_ROW = 1e-3
CLEAR = 4.0  # times below a bound is what projections tell to be below it
UPDATE_SLACK = 16.0
# Some elements may exceed what is allowed, to a point: of 70 honest kernels that were tried none had any.
MAX_BEYOND_FRACTION = 0.002
MAX_BEYOND, MAX_BEYOND_SINGLE = 64.0, 4.0  # of what is wrong in float64 as well
MOST_OF_ROW = 0.5  # rows have few such elements, for what rounds a whole row is known
MOST_MASKED = 8  # one element of so many counts at least, where the others are zero
# Below this a real engine may flush to zero, and so may its exp() of a very negative number.
FLUSHED = 1e-30
# Small values may be inaccurate here and there (a sigmoid by tanh), not be missing as a rule.
LOST = 1e-2
LOST_UNITS = 16.0
MAX_LOST_FRACTION = 0.01


# Elements of like values, or that are as large beside what rounding may make of them, are off by its size at
# most in the mean of so many. Who rounds at the end alone, as elements show whose rounding on the way would be
# seen, is off by less in the mean of more.
ALIKE, MORE, MEAN_AT_END, MEAN_IN_SINGLE = 16, 128, 0.3, 3.5
# What is left of a kernel's error without formats below float32 is no rounding: half of one is allowed in the mean
# square, in which an element counts as so many at most; or, as the reference itself rounds on the way, which is to
# either side, a whole one, and half of one in the mean of many alike.
MOST_LEFT, LEFT, MANY = 4.0, 0.5, 1024
PARTS, LEAST_OF_PART = (
    8,
    1 << 13,
)  # of an array, in one of which a kernel may be wrong, as in its last tile
FEW_ALIKE = 4  # of float32, one of each row: a sum of one, to which 1e-6 is added, may stand in few
SEEN, FEW_SEEN, AT_END = (2.0, 16.0), 64, 0.1
MOST_MEANT, MOST_ASKED = 1 << 18, 1 << 21  # elements of narrow formats, of which many are equal
MOST_SINGLE = 1 << 16  # of float32


class ComparisonVerdict(NamedTuple):
    """What the checks found: CORRECT, or the status of the one that failed, last in `checks`."""

    status: Status
    checks: tuple[Check, ...]
    exactness: tuple[Exactness, ...] = ()

    @property
    def message(self) -> str:
        """The failed check in words, empty when there is none."""
        if self.status is Status.CORRECT:
            return ""
        last = self.checks[-1]
        return last.where if self.status is Status.BASELINE_FAILED else str(last)

    @property
    def undefined(self) -> tuple[str, ...]:
        """Where the reference is NaN and so is the kernel: nothing is judged there."""
        return tuple(c.where for c in self.checks if c.name == DEFINED and c.amount)


class ElementLimits(NamedTuple):
    """What each element is held to: how much coarser than honest rounding in IEEE fp32 it may be, and
    how much at worst; what it may lose altogether, and, for ordinary inputs, how far off a value counts
    as missing (else never)."""

    rounding: float
    worst: float
    flushed: float
    missing: float


DEFINED = "a defined reference"
WHOLE = "equal whole numbers"
LEFT_OVER = "error beside rounding"
GATE, PER_ROW = "relative L2 error", "error per row"
"""The published bound, and the same of rows."""


class Gate(NamedTuple):
    """How outputs are judged: the bound of the published gate, how much is asked, how much coarser
    than IEEE fp32 the device rounds, what precision is allowed, how outputs agree, what the kernel gives
    in float64 (transformed; None where nobody knows), the usual size of each output's elements, what
    `Trial.mirrored` says, what the kernel gives with float32 in place of narrow formats, or with float64 (True),
    whether the reference rounds to such on the way, and the relative errors of outputs that are worked out in float32."""

    rel_tol: float = REL_TOL
    scrutiny: Scrutiny = Scrutiny.FULL
    rounding: float = 1.0
    precision: Precision = Precision()
    agreement: Agreement = Agreement()
    baseline: tuple[Exactness, ...] = ()
    in_double: Callable[[], Sequence[Any] | None] | None = None
    usual: tuple[float, ...] = ()
    mirrored: Callable[[], Sequence[np.ndarray]] | None = None
    unrounded: Callable[[bool], Sequence[Any] | None] | None = None
    narrow_on_the_way: Callable[[], bool] = lambda: False
    summed: Callable[[], Sequence[float]] = tuple

    def judge(
        self, trial: Trial, raw: Sequence[np.ndarray], transformed: Sequence[Any]
    ) -> ComparisonVerdict:
        """The verdict on one trial. `raw` is what the kernel returned, `transformed` the same after
        the problem's own output transform."""
        checks: list[Check] = []
        for status, check in self._checks(trial, raw, transformed):
            checks.append(check)
            if not check.passed:
                return ComparisonVerdict(status, tuple(checks))
        exactness = self._exactness(trial, raw, transformed)
        for check in self._beside_baseline(exactness):
            checks.append(check)
            if not check.passed:
                return ComparisonVerdict(Status.WRONG_NUMBERS, tuple(checks), exactness)
        return ComparisonVerdict(Status.CORRECT, tuple(checks), exactness)

    def _exactness(
        self, trial: Trial, raw: Sequence[np.ndarray], transformed: Sequence[Any]
    ) -> tuple[Exactness, ...]:
        """How exact each output is that has a floating-point format, on ordinary hidden inputs."""
        if trial.name != HIDDEN or trial.exact is None:
            return ()
        outputs = trial.judged([in_single(np.asarray(value)) for value in transformed])
        outputs = list(self.agreement.compared(trial.inputs, outputs))
        found = []
        for number, (output, exact) in enumerate(zip(outputs, trial.exact, strict=True)):
            if is_float(raw[number].dtype):
                judged, values = np.isfinite(exact.allowed) & np.isfinite(output), exact.values
                if not judged.all():
                    output, values = np.where(judged, output, 0), np.where(judged, values, 0)
                error = _ratio(l2_difference(output, values), l2(values))
                form = raw[number].dtype
                unit = 2 * NARROW.get(form.name, SINGLE).unit
                summed = trial.summed[number] if trial.summed else 0.0
                alike = form.name in NARROW and bool((values.astype(form) == values).all())
                found.append(Exactness(error=error, unit=unit, summed=summed, rounded=alike))
        return tuple(found)

    def _beside_baseline(self, exactness: tuple[Exactness, ...]) -> Iterator[Check]:
        """How many times less exact than the baseline; what the reference allows is allowed."""
        if len(exactness) == len(self.baseline):
            for number, (own, other) in enumerate(zip(exactness, self.baseline, strict=True)):
                times, limit = own.times_less(other), MOST_TIMES_LESS_EXACT
                if self.precision.declared or not self._exactly(number):
                    limit = math.inf
                where = f"output {number}: {exactness_words([own], [other])}"
                yield _check(LESS_EXACT, times <= limit, times, limit, where)

    def _checks(
        self, trial: Trial, raw: Sequence[np.ndarray], transformed: Sequence[Any]
    ) -> Iterator[tuple[Status, Check]]:
        expected = trial.forms
        given = len(raw) if self.scrutiny is not Scrutiny.PUBLISHED else len(transformed)
        many = f"{trial.name}: the kernel returns {given}, the reference {len(expected)}"
        yield (
            Status.WRONG_SHAPE,
            _check("number of outputs", given == len(expected), given, 0, many),
        )
        outputs = [in_single(np.asarray(value)) for value in transformed]
        for index, (output, reference) in enumerate(zip(outputs, expected, strict=True)):
            yield from self._form(
                index, raw, output, reference, trial, f"output {index}, {trial.name}"
            )
        expected, outputs = trial.expected, trial.judged(outputs)
        if self.agreement.rules:
            try:
                outputs = list(self.agreement.compared(trial.inputs, outputs))
            except Disagreement as error:
                where = f"of {trial.name}: {error}"
                yield Status.WRONG_NUMBERS, _check("indices", False, 1, 0, where)
        for index, output in enumerate(outputs):
            where = f"output {index}, {trial.name}{trial.rows or ''}"
            for check in self._numbers(trial, index, output, where):
                yield Status.WRONG_NUMBERS, check
            if not np.isfinite(trial.sizes[index] if trial.exact is None else 0.0).all():
                yield Status.BASELINE_FAILED, _defined(output, expected[index], where)

    def _numbers(self, trial: Trial, index: int, output: np.ndarray, where: str) -> Iterator[Check]:
        integers = trial.expected[index].dtype.kind in "iub"
        whole = integers and self.scrutiny is not Scrutiny.PUBLISHED and self._exactly(index)
        if whole:
            yield _same_integers(trial, index, output, where)
        if trial.exact is not None:
            limits = self._limits(trial, index)
            if not whole:
                found = [*_elements(trial, index, output, limits, where)]
                if not all(check.passed for check in found):
                    found = [*self._beside_double(trial, index, output, limits, where)]
                yield from found
            # Who may be off by more may be so to one side. In float32 what shares a sum shares its error, and rows
            # that were chosen for being far, which are not whole, are off as they are.
            exact, unit, asked = trial.exact[index], limits.rounding, trial.name in (HIDDEN, SWEEP)
            if not self.precision.narrow:
                usual = exact.cancelled.ndim or trial.rows is None or trial.whole
                asked = bool(usual) and not integers
            if asked and self._exactly(index):
                times = _systematic(output, exact, self.precision) / unit
                if times > 1 and (double := self._double(trial, index)) is not None:
                    output = np.where(self._near(output, double, exact, index), double, output)
                    times = min(times, _systematic(output, exact, self.precision) / unit)
                # What lies closer than numbers of the format is rounded alike, and so to one side.
                if times > 1 and (single := self._unrounded(trial, index)) is not None:
                    times = min(times, _systematic(single, exact, self.precision) / unit)
                said = f"{where}: alike elements are off to the same side"
                yield _check(MEAN_ERROR, times <= 1, times, 1, said)
                if self.precision.narrow and not integers:
                    yield self._left(trial, index, output, where)
        else:
            yield from self._norms(trial, index, output, where)

    def _beside_double(
        self, trial: Trial, index: int, output: np.ndarray, limits: ElementLimits, where: str
    ) -> Iterator[Check]:
        """Each element of a kernel that failed, with those spared that are errors of rounding alone: the kernel
        is right there in float64, where it may cancel as it likes, and in float32 not farther from that than a
        row may be from its reference, of what is usual in that row or of the output. The few that may be farther
        off are right in float64 too, where that is known."""
        double = self._double(trial, index)
        wide = limits._replace(worst=max(limits.worst, MAX_BEYOND * self.rounding))
        if double is None or trial.exact is None:
            yield from _elements(trial, index, output, wide, where)
            return
        exact = trial.exact[index]
        with np.errstate(all="ignore"):
            right = np.abs(double - exact.values) <= exact.allowed_to(output, self.rounding)
            rounded = right & self._near(output, double, exact, index)
        yield from _elements(trial, index, output, wide, where, rounded)
        yield next(_elements(trial, index, output, limits, where, right))

    def _sizes(self, exact: Exact, index: int) -> np.ndarray:
        """What is usual in the row of each element, or in the output if that is more."""
        sizes = np.where(np.isfinite(exact.allowed), np.abs(exact.values), 0)
        if sizes.ndim > 1 and sizes.shape[-1] >= NARROW_ROW:
            squares = np.square(sizes, dtype=np.float64)
            sizes = np.sqrt(squares.mean(axis=-1, keepdims=True))
        return np.asarray(np.maximum(sizes, self.usual[index]))

    def _near(self, output: np.ndarray, double: np.ndarray, exact: Exact, index: int) -> np.ndarray:
        """Which elements are not farther from the kernel in float64 than a row may be from its reference."""
        with np.errstate(all="ignore"):
            off = np.abs(output - double)
            limit = ROW_FACTOR * self.rel_tol * self._sizes(exact, index)
            unit = ARGUMENT_SLACK * self.rounding * self.precision.unit
            wide = unit * self._complements(off > limit, index)
            return np.asarray((off <= limit) | (off <= wide))

    def _complements(self, beyond: np.ndarray, index: int) -> np.ndarray:
        """On what scale each element may cancel (h * sigmoid(z) by tanh, of a z far below zero: h). Asked where
        few are `beyond` what is allowed else: it takes runs of the reference, and a wrong kernel has more."""
        few = 0 < np.count_nonzero(beyond) <= max(1, MAX_BEYOND_FRACTION * beyond.size)
        return np.asarray(self.mirrored()[index] if few and self.mirrored else 0)

    def _double(self, trial: Trial, index: int) -> np.ndarray | None:
        """What the kernel gives in float64, in the form that is compared: exact where only float64 rounds."""
        outputs = self.in_double() if self.in_double else None
        if outputs is None:
            return None
        judged = trial.judged([np.asarray(one) for one in outputs])
        double = self.agreement.compared(trial.inputs, judged)[index].astype(np.float64)
        if trial.exact is None or (exact := trial.exact[index]).cancelled.ndim:
            return double
        with np.errstate(all="ignore"):
            off, unit = np.abs(double - exact.values), SLACK**2 * UNIT_OF_EXACT
            limit = unit * self._sizes(exact, index)
            beyond = off > np.maximum(limit, exact.allowed)
            rounded = (off <= limit) | (off <= unit * self._complements(beyond, index))
        return np.where(rounded, exact.values, double)

    def _unrounded(self, trial: Trial, index: int, *, double: bool = False) -> np.ndarray | None:
        """What the kernel gives without formats below float32, as the reference rounds its result."""
        known = self.unrounded and self.precision.narrow and not self.agreement.rules
        outputs = self.unrounded(double) if known and self.unrounded else None
        if outputs is None:
            return None
        form = trial.expected[index].dtype
        return np.asarray(in_single(trial.judged([np.asarray(outputs[index]).astype(form)])[0]))

    def _left(self, trial: Trial, index: int, output: np.ndarray, where: str) -> Check:
        """What is left of the error without formats below float32, in roundings that each element is allowed. Asked of
        a kernel that is off by more in its own formats: as it works in float32 or, where that is farther off, in float64."""
        assert trial.exact is not None, "exact outputs are compared"
        exact = trial.exact[index]
        narrower = np.float32(SINGLE.unit / self.precision.unit)
        size = np.maximum(exact.allowed / SLACK, np.abs(exact.cancelled) * narrower)
        amount = self._left_of(in_single(output.astype(trial.expected[index].dtype)), exact, size)
        for double in (False, True):
            found = self._unrounded(trial, index, double=double) if amount > LEFT else None
            if found is not None:
                amount = min(amount, self._left_of(found, exact, size))
            elif not double:  # nobody knows
                amount = min(amount, LEFT)
        said = f"{where}: as far off where the kernel works in float32 and rounds to no fewer bits"
        return _check(LEFT_OVER, amount <= LEFT, amount, LEFT, said)

    def _left_of(self, found: np.ndarray, exact: Exact, size: np.ndarray) -> float:
        """The error, in units of `size`, of outputs as the reference rounds its own."""
        with np.errstate(all="ignore"):
            off = (found - exact.values) / size
        judged = np.isfinite(off) & np.isfinite(size) & (np.abs(exact.values) > UNDERFLOW)
        off = np.clip(off[judged], -MOST_LEFT, MOST_LEFT)
        square = float(l2(off) / max(1, off.size) ** 0.5)
        if square <= LEFT or not self.narrow_on_the_way():
            return square
        # What is equal, a reference that rounds on the way has rounded alike.
        values, first, equal = np.unique(
            exact.values[judged], return_index=True, return_inverse=True
        )
        means = np.bincount(equal, off) / np.bincount(equal)
        keys = values, values / size[judged][first]
        of_many = (largest_mean(means, key, min(MANY, key.size)) for key in keys)
        return float(max(square / 2, *of_many))

    def _known_to(self, index: int) -> float:
        """The relative error of an output that is worked out in float32; 0 where it is not known, or not asked."""
        if self.scrutiny is Scrutiny.PUBLISHED or self.precision.narrow or self.rounding > 1:
            return 0.0
        summed = self.summed()
        return summed[index] if index < len(summed) and self._exactly(index) else 0.0

    def _exactly(self, index: int) -> bool:
        return self.agreement.rule(index).rel_tol is None

    def _bound(self, index: int) -> float:
        """The bound of an output's relative L2 error: its own, or that of all."""
        own = self.agreement.rule(index).rel_tol
        return self.precision.rel_tol(self.rel_tol if own is None else own)

    def _limits(self, trial: Trial, index: int) -> ElementLimits:
        bound, rounding = self._bound(index), self.rounding
        worst = rounding * (MAX_BEYOND if self.precision.narrow else MAX_BEYOND_SINGLE)
        if bound > self.precision.rel_tol(WIDEST_PUBLISHED):
            rounding *= max(1.0, bound / (2 * SLACK * self.precision.unit))
            worst = max(worst, ROW_FACTOR * rounding)
        lost = max(LOST, LOST_UNITS * self.precision.unit, bound)
        return ElementLimits(
            rounding,
            worst,
            FLUSHED if self.rounding > 1 else 0.0,
            lost if trial.name == HIDDEN else math.inf,
        )

    def _form(
        self,
        index: int,
        raw: Sequence[np.ndarray],
        output: np.ndarray,
        reference: np.ndarray,
        trial: Trial,
        where: str,
    ) -> Iterator[tuple[Status, Check]]:
        """Shape and dtype. The kernel's own shape is what the problem's output transform takes."""
        shapes = f"{where}: expected {reference.shape}, got {output.shape}"
        yield Status.WRONG_SHAPE, _check("shape", output.shape == reference.shape, 0, 0, shapes)
        if self.scrutiny is Scrutiny.PUBLISHED:
            return
        wanted = output_dtypes(reference, trial.inputs, self.precision)
        if self.agreement.rule(index).indices_into is not None:
            wanted = INDEX_FORMATS
        formats = f"{where}: expected {' or '.join(wanted)}, got {raw[index].dtype}"
        yield Status.WRONG_DTYPE, _check("dtype", raw[index].dtype.name in wanted, 0, 0, formats)

    def _norms(self, trial: Trial, index: int, output: np.ndarray, where: str) -> Iterator[Check]:
        """The published gate on the whole, each row and an update. What projections tell has to be clear."""
        reference, sizes = trial.expected[index], trial.sizes[index]
        bound, clear = self._bound(index), CLEAR if trial.projections else 1.0
        if trial.errors:
            errors = trial.errors[index]
        elif trial.projections:
            errors = trial.projections[index].norms(output)
        else:
            errors = row_norms(output, reference)
        if np.isfinite(errors).all():
            total = float(np.sqrt(np.sum(np.square(sizes))))
            relative = _ratio(float(np.sqrt(np.sum(np.square(errors)))), total)
        else:
            yield _finite(output, reference, where, strictly=trial.name == NOT_FINITE)
            relative = relative_l2(output, reference)
        if not relative < bound and clear == 1 and (known := self._known_to(index)) > bound / ROOM:
            bound = max(bound, ROOM * known)
            where += f"{KNOWN_TO} {known:.2g}"
        gate = _gate(output, reference, relative, bound / clear, where)
        yield gate.model_copy(update={"limit": bound})
        if self.scrutiny is not Scrutiny.PUBLISHED:
            yield _rows(errors, sizes, ROW_FACTOR * bound / clear, where)
            if (updated := trial.updates[index]) is not None:
                check = self._update(trial, index, updated, errors, where)
                if not check.passed and (double := self._double(trial, index)) is not None:
                    errors = row_norms(double, reference)  # the published bound holds rounding
                    check = self._update(trial, index, updated, errors, where)
                yield check

    def _update(
        self, trial: Trial, index: int, update: Update, errors: np.ndarray, where: str
    ) -> Check:
        """The error as a part of the update, which a global error hides behind the parameter."""
        change = l2_difference(trial.expected[index], in_single(trial.inputs[update.input]))
        error = float(np.sqrt(np.sum(np.square(errors)))) / change
        unit = self.rounding * self.precision.unit
        rounded = unit * float(np.sqrt(np.sum(np.square(trial.sizes[index]))))
        honest = UPDATE_SLACK * max(rounded, self.rounding * update.honest)
        limit = max(self._bound(index), honest / change)
        return _check("error of the update", error <= limit, error, limit, where)


def _check(name: str, passed: bool, amount: float, limit: float, where: str) -> Check:
    return Check(name=name, passed=bool(passed), amount=amount, limit=limit, where=where)


def usual_size(output: np.ndarray, norms: np.ndarray) -> float:
    """The root of the mean square of what is finite; `norms` are those of the output's rows."""
    if not np.isfinite(size := l2(norms)):
        output = output[np.isfinite(output)]
        size = l2(output)
    return size / math.sqrt(max(1, output.size))


def expected_dtype(reference: np.ndarray, inputs: Sequence[Any]) -> np.dtype[Any]:
    """The reference's dtype; for a float wider than every floating-point input, the widest of those
    (NumPy widens to float64 at the touch of one of its scalars)."""
    floats = [value.dtype for value in inputs if isinstance(value, np.ndarray)]
    floats = [dtype for dtype in floats if is_float(dtype)]
    if reference.dtype.kind == "f" and floats:
        widest: np.dtype[Any] = max(floats, key=lambda dtype: dtype.itemsize)
        if reference.dtype.itemsize > widest.itemsize:
            return widest
    return reference.dtype


def output_dtypes(
    reference: np.ndarray, inputs: Sequence[Any], precision: Precision
) -> tuple[str, ...]:
    """The formats that an output may have: the expected one first. Where narrow formats are allowed,
    those too, and float32 for what is worked out in it."""
    names = [expected_dtype(reference, inputs).name]
    if names == ["int64"]:  # NumPy's own integers, of a size that no kernel has
        names = ["int32", "uint32", "int64"]
    if precision.narrow and is_float(reference.dtype):
        names += ["float32", *precision.narrow]
    return tuple(dict.fromkeys(names))


def _same_integers(trial: Trial, index: int, output: np.ndarray, where: str) -> Check:
    """Whole numbers are right or wrong, but for those that honest rounding makes of one number or of another;
    where they may be indices, what they name is told."""
    expected = trial.expected[index]
    wrong = np.asarray(output != expected)
    if trial.exact is not None and wrong.any():
        exact, found = trial.exact[index], output.astype(np.float64)
        between = (exact.allowed >= BETWEEN) & (np.abs(found - exact.values) <= exact.allowed)
        if exact.at_end.ndim:  # with formats of few bits that is wide, and few are so far off
            far = wrong & (np.abs(found - expected) > exact.at_end)
            if np.count_nonzero(far) > MAX_BEYOND_FRACTION * far.size:
                between &= ~far
        wrong &= ~between
    count = int(wrong.sum())
    if count:
        place = _place(int(np.argmax(wrong)), output.shape)
        got, wanted = output[place].item(), expected[place].item()
        place = trial.place(place)
        said = pattern.words(wrong, output, expected, trial.rows)
        where += f": {said}, the first at {place}: {got} for {wanted}"
        where += tie_note(trial.inputs, index, place, int(got), int(wanted))
    return _check(WHOLE, count == 0, count, 0, where)


def _finite(output: np.ndarray, reference: np.ndarray, where: str, *, strictly: bool) -> Check:
    """Non-finite where the reference is finite, or another kind of non-finite. Where the reference is
    NaN the kernel is not to blame, unless the reference speaks of NaN (`strictly`)."""
    with np.errstate(all="ignore"):
        usual = np.isfinite(output) & np.isfinite(reference)
        same = (output == reference) | np.isnan(reference)
        same &= np.isnan(output) | ~np.isnan(reference) | (not strictly)
    wrong = ~(usual | same)
    count = int(wrong.sum())
    if count:
        place = _place(int(np.argmax(wrong)), output.shape)
        where += (
            f": NaN or infinity, first at {place}: {output[place]:.6g} for {reference[place]:.6g}"
            f"; {pattern.words(wrong, output, reference)}"
        )
    return _check("finite values", count == 0, count, 0, where)


def _defined(output: np.ndarray, reference: np.ndarray, where: str) -> Check:
    """Where the reference is NaN and the kernel is not, nobody can say which of them is right, and
    where all is NaN nothing is judged."""
    undefined = np.isnan(reference)
    count, wrong = int(undefined.sum()), undefined & ~np.isnan(output)
    passed = not wrong.any() and count < reference.size
    if count:
        place = _place(int(np.argmax(wrong if wrong.any() else undefined)), output.shape)
        where = f"the reference gives NaN for {count} of {reference.size} elements of {where}, at {place}"
        where += f" and others, where the kernel gives {output[place]:.6g}"
        where += "" if passed else ": draw inputs in get_inputs for which the reference is defined"
    return _check(DEFINED, passed, count, reference.size, where)


def _place(flat: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(int(i) for i in np.unravel_index(flat, shape))


def _ratio(error: float, size: float) -> float:
    if size == 0:
        return 0.0 if error == 0 else math.inf
    return error / size


def relative_l2(output: np.ndarray, reference: np.ndarray) -> float:
    """|output - reference| / |reference| in the 2-norm over what is finite; 0 for equal zeros."""
    if not np.isfinite(size := l2(reference)):
        finite = np.isfinite(reference) & np.isfinite(output)
        output, reference = output[finite], reference[finite]
        size = l2(reference)
    return _ratio(l2_difference(output, reference), size)


def _gate(
    output: np.ndarray, reference: np.ndarray, relative: float, rel_tol: float, where: str
) -> Check:
    passed = relative < rel_tol
    if not passed:
        usual, most = l2(reference) / reference.size**0.5, 0.0
        wrong = np.empty(reference.size, bool)
        got, true = output.reshape(-1), reference.reshape(-1)
        for part in blocks(wrong.size):
            with np.errstate(all="ignore"):
                difference = np.abs(got[part].astype(np.float64) - true[part])
                wrong[part] = difference > rel_tol * np.maximum(np.abs(true[part]), usual)
            most = max(most, float(difference.max(initial=0, where=difference == difference)))
        where += f": value mismatch, max diff {most:.6g}"
        said = pattern.words(wrong.reshape(reference.shape), output, reference)
        where += f"; {said}" if said else ""
    return _check(GATE, passed, relative, rel_tol, where)


def _rows(errors: np.ndarray, sizes: np.ndarray, limit: float, where: str) -> Check:
    """The worst row. Rows that are not finite were compared before."""
    usable = np.isfinite(sizes) & np.isfinite(errors)
    if not usable.any():
        return _check(PER_ROW, True, 0, limit, where)
    usual = math.sqrt(float(np.mean(np.square(sizes[usable]))))
    scale = np.maximum(sizes, SMALL_ROW * usual)
    ratios = np.zeros_like(errors)
    np.divide(errors, scale, out=ratios, where=usable & (scale > 0))
    worst = int(np.argmax(ratios))
    amount = float(ratios[worst])
    where += f": worst row {worst}"
    if amount > limit:
        where += f" of {np.count_nonzero(ratios > limit)} among {ratios.size} that are wrong"
    return _check(PER_ROW, amount <= limit, amount, limit, where)


def _systematic(output: np.ndarray, exact: Exact, precision: Precision) -> float:
    """The largest mean error of alike elements over what it may be; 0 where too few are judged."""
    step = exact.values.size // (MOST_ASKED if precision.narrow else MOST_SINGLE) | 1  # all columns
    which: Any = slice(None, None, step)
    if not precision.narrow and not exact.cancelled.ndim:
        which = _of_each_row(exact)
    values, allowed, found = (
        np.ravel(one)[which].astype(np.float64) for one in (exact.values, exact.allowed, output)
    )
    cancelled = np.ravel(exact.cancelled)[::step].astype(np.float64)
    size = allowed / SLACK
    with np.errstate(invalid="ignore"):  # of equal infinities
        off = np.abs(found - values) > allowed
    if exact.cancelled.ndim:
        cancels = np.maximum(size, np.abs(cancelled) / ARGUMENT_SLACK)
        if precision.narrow:
            size = _size_of_who_cancels(values, size, cancels, found, cancelled, precision)
        elif off.any():  # of who does, as its errors show
            wider = np.ravel(exact.allowed_to(output, 1.0))[::step] > allowed
            size = np.where(wider, cancels, size)
    with np.errstate(all="ignore"):
        error = (found - values) / size
    judged = np.flatnonzero(np.isfinite(size) & np.isfinite(found) & (np.abs(values) > UNDERFLOW))
    few = 0 if exact.cancelled.ndim else FEW_ALIKE  # of float32

    def worst_of(which: np.ndarray, mean: np.ndarray) -> float:
        alike = values[which], size[which]
        if precision.narrow:
            return _mean_in_narrow(*alike, error[which], mean, precision.unit)
        keys = alike[0], np.divide(*alike)
        return max(largest_mean(mean / MEAN_IN_SINGLE, key, ALIKE, few) for key in keys)

    thinner = judged[:: 1 + judged.size // MOST_MEANT]
    if not isinstance(which, slice):
        return worst_of(thinner, error[thinner])
    count, worst = min(PARTS, thinner.size // LEAST_OF_PART), 0.0
    for part in (judged, *(np.array_split(thinner, count) if count > 1 else ())):
        # Equal ones of equal arguments are rounded alike and count once. A reference that rounds to few bits gives
        # equal ones for other arguments too, of which few may be off: all of them tell how far.
        _, first, equal = np.unique(values[part], return_index=True, return_inverse=True)
        mean = np.bincount(equal, error[part]) / np.bincount(equal)
        thin = slice(None, None, 1 + first.size // MOST_MEANT)
        worst = max(worst, worst_of(part[first][thin], mean[thin]))
    return worst


def _mean_in_narrow(
    values: np.ndarray, size: np.ndarray, error: np.ndarray, mean: np.ndarray, unit: float
) -> float:
    """The largest mean error of alike elements of a format below float32 over what it may be, which is less where
    the kernel rounds at the end alone, as the elements' own errors show."""
    beside = values / size
    seen = (np.abs(beside) > SEEN[0]) & (np.abs(beside) < SEEN[1])
    usual = MEAN - unit * np.abs(beside)
    # Of few numbers as many as lie on one side of zero: what a factor makes of them differs by where they lie.
    more = min(MORE, max(ALIKE, values.size // 2))
    limits = [(usual, ALIKE), (usual, more)]
    # One rounding is to the nearest: half the distance of neighbouring numbers.
    nearest = (1 + AT_END) * half_spacing(values, unit) / size
    at_end = np.count_nonzero(seen) >= FEW_SEEN and l2(error[seen]) < AT_END * seen.sum() ** 0.5
    if at_end and (np.abs(error) > nearest)[seen].mean() <= MOST_HIDDEN:
        least = np.maximum(nearest, MEAN_AT_END)
        limits[0] = np.where(np.abs(beside) > SEEN[1], least, usual), ALIKE
        limits.append((least, MORE))
    pairs = itertools.product((values, beside), limits)
    return max(largest_mean(mean / most, key, number) for key, (most, number) in pairs)


def _size_of_who_cancels(
    values: np.ndarray,
    size: np.ndarray,
    cancels: np.ndarray,
    found: np.ndarray,
    cancelled: np.ndarray,
    precision: Precision,
) -> np.ndarray:
    """The errors that elements may have, flat: those of a form that `cancels`, unless the kernel's own show that it does
    so in float32 at most, each side and sign alone. Values nearly as large as such errors show it, which a kernel that
    cancels gives as nothing or as twice as much, and one whose results are merely bounded does not."""
    size, fine = size.copy(), np.maximum(size, cancels * (SINGLE.unit / precision.unit))
    with np.errstate(all="ignore"):
        relative, place = np.abs(found - values) / cancels, np.abs(values) / cancels
    telling = (cancels > SHOWS * size) & (place <= 1) & (place > 1 / THERE) & np.isfinite(relative)
    for side in itertools.product((True, False), repeat=2):
        own = (np.signbit(cancelled) == side[0]) & (np.signbit(values) == side[1])
        there = relative[own & telling]
        shown = there.size >= FEW_SEEN and l2(there) < AT_END * there.size**0.5
        size = np.where(own, fine if shown else cancels, size)
    return size


def _of_each_row(exact: Exact) -> np.ndarray:
    """Where the element of each row stands of which most is known, one of a column where there are several: no two
    of them share a sum along either."""
    width = exact.values.shape[-1] if exact.values.ndim > 1 else 1
    rows = np.arange(exact.values.size // width)[:: exact.values.size // MOST_MEANT | 1]
    with np.errstate(all="ignore"):
        known = (np.reshape(one, (-1, width))[rows] for one in (exact.allowed, exact.values))
        relative = np.nan_to_num(np.divide(*map(np.abs, known)), nan=np.inf)
    columns = relative.argmin(axis=1)
    order = np.argsort(relative[np.arange(len(rows)), columns], kind="stable")
    if width > 1:
        order = order[np.unique(columns[order], return_index=True)[1]]
    return np.asarray(rows[order] * width + columns[order])


def _elements(
    trial: Trial,
    index: int,
    output: np.ndarray,
    limits: ElementLimits,
    where: str,
    rounded: np.ndarray | None = None,
) -> Iterator[Check]:
    """Each element against the exact result: the worst error as a multiple of what honest rounding
    allows, how many exceed it, and for ordinary inputs how many values are missing. Those that are `rounded` alone
    exceed nothing."""
    flat, shape = output.reshape(-1), output.shape
    assert trial.exact is not None, "exact outputs are compared"
    exact = trial.exact[index]
    parts = exact.values, exact.allowed_to(output, limits.rounding), exact.resolved
    values, allowed, resolved = (array.reshape(-1) for array in parts)
    if rounded is not None:
        with np.errstate(all="ignore"):
            off = np.maximum(allowed, np.abs(flat - values))
        allowed = np.where(rounded.reshape(-1), off, allowed)
    if (undefined := np.isnan(flat)).any() and len(shape) > 1 and not exact.cancelled.ndim:
        # What is undefined in the reference a kernel may have multiplied by zeros beside it.
        lines = np.isnan(exact.values).any(axis=-1, keepdims=True)
        undefined &= np.broadcast_to(lines, shape).reshape(-1)
        allowed = np.where(undefined, np.inf, allowed)
    worst, at, beyond, lost, judged = 0.0, 0, 0, 0, 0
    rounding = limits.rounding
    for part in blocks(flat.size):
        with np.errstate(all="ignore"):
            error = np.abs(flat[part] - values[part])
            ratio = error / (allowed[part] + limits.flushed)
        if np.isnan(ratio).any():
            unusual = np.isnan(ratio) & np.isfinite(allowed[part])
            if unusual.any():
                place = trial.place(_place(part.start + int(np.argmax(unusual)), shape))
                wrong = np.isnan(output) & np.isfinite(exact.allowed)
                said = pattern.words(wrong, output, exact.values, trial.rows)
                yield _check(
                    "finite values", False, 1, 0, f"{where}: NaN, first at {place}; {said}"
                )
            ratio = np.nan_to_num(ratio, nan=0.0, posinf=np.inf)
        candidate = int(np.argmax(ratio))
        if ratio[candidate] > worst:
            worst, at = float(ratio[candidate]), part.start + candidate
        if worst > rounding:
            beyond += int(np.count_nonzero(ratio > rounding))
        if limits.missing < math.inf:
            missing = (error > limits.missing * np.abs(values[part])) & resolved[part]
            if rounded is not None:
                missing &= ~rounded.reshape(-1)[part]
            lost += int(np.count_nonzero(missing))
            judged += int(np.count_nonzero(resolved[part]))
    # What is zero by a mask is right without rounding, and hides no wrong elements beside it.
    counted = max(int(np.count_nonzero(values)), flat.size // MOST_MASKED, 1)
    if worst > rounding:
        place = trial.place(_place(at, shape))
        where += f": at {place} got {flat[at]:.9g}, exact {values[at]:.9g}"
        if worst > limits.worst or beyond > MAX_BEYOND_FRACTION * counted:
            with np.errstate(all="ignore"):
                wrong = np.abs(flat - values) > rounding * (allowed + limits.flushed)
            where += f"; {pattern.words(wrong.reshape(shape), output, exact.values, trial.rows)}"
    limit = limits.worst
    yield _check("largest error over honest rounding", worst <= limit, worst, limit, where)
    fraction = beyond / counted
    few, most = fraction <= MAX_BEYOND_FRACTION, MAX_BEYOND_FRACTION
    yield _check("fraction beyond honest rounding", few, fraction, most, where)
    if few and beyond and (width := row_width(shape)) >= NARROW_ROW:
        with np.errstate(all="ignore"):
            wrong = np.abs(flat - values) > rounding * (allowed + limits.flushed)
        share = wrong.reshape(-1, width).mean(axis=1)
        amount, row = float(share.max()), f"{where}; row {int(np.argmax(share))} of what is judged"
        yield _check("fraction of a row", amount <= MOST_OF_ROW, amount, MOST_OF_ROW, row)
    if limits.missing < math.inf:
        fraction = lost / max(judged, 1)
        few = fraction <= MAX_LOST_FRACTION
        yield _check("fraction of values lost", few, fraction, MAX_LOST_FRACTION, where)
