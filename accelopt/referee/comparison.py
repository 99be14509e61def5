"""Is this output right? The published gate, and the checks that make it sound.

Each check says what it measured, against which limit, and where it was worst.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from accelopt.records import Check, Scrutiny, Status
from accelopt.referee.norms import blocks, l2, l2_difference, row_norms
from accelopt.referee.tolerance import UNIT, Exact
from accelopt.referee.trials import HIDDEN, STRESS, Trial

# A row may be this many times worse than the whole output is allowed to be.
ROW_FACTOR = 10.0
# Rows much smaller than usual are judged on the usual scale: their value is cancellation.
SMALL_ROW = 1e-3
UPDATE_SLACK = 16.0
# Samples of rounding may all be small by luck: a few elements may exceed what is allowed, to a point.
MAX_BEYOND_FRACTION = 0.01
MAX_BEYOND = 64.0
# Small values may be inaccurate here and there (a sigmoid by tanh), not be missing as a rule.
LOST = 1e-2
MAX_LOST_FRACTION = 0.01


class Verdict(NamedTuple):
    """What the checks found: CORRECT, or the status of the one that failed, last in `checks`."""

    status: Status
    checks: tuple[Check, ...]

    @property
    def message(self) -> str:
        """The failed check in words, empty when there is none."""
        return "" if self.status is Status.CORRECT else str(self.checks[-1])


class Judge(NamedTuple):
    """How outputs are judged: the bound of the published gate, how much is asked, and how much
    coarser than IEEE fp32 the device rounds."""

    rel_tol: float = 2e-5
    scrutiny: Scrutiny = Scrutiny.FULL
    rounding: float = 1.0

    def judge(self, trial: Trial, raw: Sequence[np.ndarray], transformed: Sequence[Any]) -> Verdict:
        """The verdict on one trial. `raw` is what the kernel returned, `transformed` the same after
        the problem's own output transform."""
        checks: list[Check] = []
        for status, check in self._checks(trial, raw, transformed):
            checks.append(check)
            if not check.passed:
                return Verdict(status, tuple(checks))
        return Verdict(Status.CORRECT, tuple(checks))

    def _checks(
        self, trial: Trial, raw: Sequence[np.ndarray], transformed: Sequence[Any]
    ) -> Iterator[tuple[Status, Check]]:
        expected = trial.expected
        given = len(raw) if self.scrutiny is Scrutiny.FULL else len(transformed)
        yield (
            Status.WRONG_SHAPE,
            _check(
                "number of outputs", given == len(expected), given, len(expected), str(trial.name)
            ),
        )
        for index, (value, reference) in enumerate(zip(transformed, expected, strict=True)):
            where = f"output {index}, {trial.name}"
            output = np.asarray(value)
            yield from self._form(index, raw, output, reference, trial, where)
            yield Status.WRONG_NUMBERS, _finite(output, reference, trial, index, where)
            if trial.name not in (HIDDEN, STRESS):
                yield Status.WRONG_NUMBERS, _gate(output, reference, self.rel_tol, where)
            if self.scrutiny is Scrutiny.FULL:
                yield from self._numbers(trial, index, output, where)

    def _form(
        self,
        index: int,
        raw: Sequence[np.ndarray],
        output: np.ndarray,
        reference: np.ndarray,
        trial: Trial,
        where: str,
    ) -> Iterator[tuple[Status, Check]]:
        """Shape and dtype."""
        shapes = f"{where}: expected {reference.shape}, got {output.shape}"
        yield Status.WRONG_SHAPE, _check("shape", output.shape == reference.shape, 0, 0, shapes)
        if self.scrutiny is not Scrutiny.FULL:
            return
        own = raw[index].shape
        layout = f"{where}: the kernel returns {own} for {reference.shape}"
        yield Status.WRONG_SHAPE, _check("layout", same_layout(own, reference.shape), 0, 0, layout)
        wanted = expected_dtype(reference, trial.inputs)
        formats = f"{where}: expected {wanted}, got {raw[index].dtype}"
        yield Status.WRONG_DTYPE, _check("dtype", raw[index].dtype == wanted, 0, 0, formats)

    def _numbers(
        self, trial: Trial, index: int, output: np.ndarray, where: str
    ) -> Iterator[tuple[Status, Check]]:
        wrong = Status.WRONG_NUMBERS
        reference = trial.expected[index]
        if trial.exact is not None:
            exact = trial.exact[index]
            for check in _elements(output, exact, self.rounding, where):
                yield wrong, check
            if trial.name != STRESS:
                yield wrong, _lost(output, exact, where)
        else:
            yield wrong, _rows(output, reference, ROW_FACTOR * self.rel_tol, where)
        updated = trial.updates[index]
        if updated is not None and trial.name != STRESS:
            yield wrong, _update(output, reference, trial.inputs[updated], self, where)


def _check(name: str, passed: bool, amount: float, limit: float, where: str) -> Check:
    return Check(name=name, passed=bool(passed), amount=amount, limit=limit, where=where)


def same_layout(kernel: tuple[int, ...], reference: tuple[int, ...]) -> bool:
    """True when one shape comes from the other by splitting or merging neighbouring dimensions.

    The transforms reshape whatever has the right number of elements: (7168, 4096) would pass for
    (4096, 7168).
    """
    first, second = _boundaries(kernel), _boundaries(reference)
    return first <= second or second <= first


def _boundaries(shape: tuple[int, ...]) -> set[int]:
    return {math.prod(shape[axis:]) for axis in range(len(shape) + 1)}


def expected_dtype(reference: np.ndarray, inputs: Sequence[Any]) -> np.dtype[Any]:
    """The reference's dtype; for a float wider than every floating-point input, the widest of those
    (NumPy widens to float64 at the touch of one of its scalars)."""
    floats = [value.dtype for value in inputs if isinstance(value, np.ndarray)]
    floats = [dtype for dtype in floats if dtype.kind == "f"]
    if reference.dtype.kind == "f" and floats:
        widest: np.dtype[Any] = max(floats, key=lambda dtype: dtype.itemsize)
        if reference.dtype.itemsize > widest.itemsize:
            return widest
    return reference.dtype


def _finite(
    output: np.ndarray, reference: np.ndarray, trial: Trial, index: int, where: str
) -> Check:
    """Non-finite where the reference is finite, or another kind of non-finite."""
    allowed = None if trial.exact is None else trial.exact[index].allowed.reshape(-1)
    left, right = output.reshape(-1), reference.reshape(-1)
    count, first = 0, -1
    for part in blocks(left.size):
        a, b = left[part], right[part]
        usual = np.isfinite(a) & np.isfinite(b)
        if usual.all():
            continue
        with np.errstate(all="ignore"):
            wrong = ~(usual | (a == b) | (np.isnan(a) & np.isnan(b)))
        if allowed is not None:
            wrong &= np.isfinite(allowed[part])
        if wrong.any():
            first = part.start + int(np.argmax(wrong)) if first < 0 else first
            count += int(wrong.sum())
    if count:
        at = np.unravel_index(first, output.shape)
        where += f": NaN or infinity, first at {tuple(int(i) for i in at)}"
    return _check("finite values", count == 0, count, 0, where)


def relative_l2(output: np.ndarray, reference: np.ndarray) -> float:
    """|output - reference| / |reference| in the 2-norm over what is finite; 0 for equal zeros."""
    if not np.isfinite(size := l2(reference)):
        finite = np.isfinite(reference) & np.isfinite(output)
        output, reference = output[finite], reference[finite]
        size = l2(reference)
    error = l2_difference(output, reference)
    if size == 0:
        return 0.0 if error == 0 else math.inf
    return error / size


def _gate(output: np.ndarray, reference: np.ndarray, rel_tol: float, where: str) -> Check:
    error = relative_l2(output, reference)
    passed = error < rel_tol
    if not passed:
        difference = np.abs(output.astype(np.float64) - reference)
        where += f": value mismatch, max diff {np.nanmax(difference):.6g}"
    return _check("relative L2 error", passed, error, rel_tol, where)


def _rows(output: np.ndarray, reference: np.ndarray, limit: float, where: str) -> Check:
    if not output.size:
        return _check("error per row", True, 0, limit, where)
    with np.errstate(all="ignore"):
        errors, sizes = row_norms(output, reference), row_norms(reference)
        usable = np.isfinite(sizes)
        usual = math.sqrt(float(np.mean(sizes[usable] ** 2))) if usable.any() else 0.0
        scale = np.maximum(sizes, SMALL_ROW * usual)
        ratios = np.where(usable & (scale > 0), errors / scale, np.where(errors > 0, np.inf, 0))
        ratios[~usable] = 0
    worst = int(np.argmax(ratios))
    passed = bool(ratios[worst] <= limit)
    return _check(
        "error per row", passed, float(ratios[worst]), limit, f"{where}: worst row {worst}"
    )


def _elements(output: np.ndarray, exact: Exact, rounding: float, where: str) -> Iterator[Check]:
    """Errors as multiples of what honest rounding allows: the worst, and how many are beyond it."""
    values, allowed = exact.values.reshape(-1), exact.allowed.reshape(-1)
    flat = output.reshape(-1)
    worst, at, beyond = 0.0, 0, 0
    for part in blocks(flat.size):
        with np.errstate(all="ignore"):
            error = np.abs(flat[part].astype(np.float64) - values[part])
            ratio = np.where(np.isfinite(allowed[part]), error / allowed[part], 0.0)
        beyond += int((ratio > rounding).sum())
        candidate = int(np.argmax(ratio))
        if ratio[candidate] > worst:
            worst, at = float(ratio[candidate]), part.start + candidate
    if worst > rounding:
        place = tuple(int(i) for i in np.unravel_index(at, output.shape))
        where += f": at {place} got {flat[at]:.9g}, exact {values[at]:.9g}"
    limit = MAX_BEYOND * rounding
    yield _check("largest error over honest rounding", worst <= limit, worst, limit, where)
    fraction, limit = beyond / max(flat.size, 1), MAX_BEYOND_FRACTION
    yield _check("fraction beyond honest rounding", fraction <= limit, fraction, limit, where)


def _lost(output: np.ndarray, exact: Exact, where: str) -> Check:
    """The fraction of well-determined elements that are wrong by more than a percent."""
    values, resolved = exact.values.reshape(-1), exact.resolved.reshape(-1)
    flat = output.reshape(-1)
    lost, judged = 0, 0
    for part in blocks(flat.size):
        with np.errstate(all="ignore"):
            error = np.abs(flat[part].astype(np.float64) - values[part])
            lost += int((resolved[part] & (error > LOST * np.abs(values[part]))).sum())
        judged += int(resolved[part].sum())
    fraction = lost / judged if judged else 0.0
    limit = MAX_LOST_FRACTION
    return _check("fraction of values lost", fraction <= limit, fraction, limit, where)


def _update(
    output: np.ndarray, reference: np.ndarray, before: np.ndarray, judge: Judge, where: str
) -> Check:
    """The error as a part of the update, which a global error hides behind the parameter."""
    change = l2_difference(reference, before)
    error = l2_difference(output, reference) / change
    rounding = UPDATE_SLACK * judge.rounding * UNIT * l2(reference) / change
    limit = max(judge.rel_tol, rounding)
    return _check("error of the update", error <= limit, error, limit, where)
