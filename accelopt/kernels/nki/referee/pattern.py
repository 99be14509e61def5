"""What the wrong elements of an output look like: how many, where, and what they hold."""

from __future__ import annotations

import numpy as np

from accelopt.kernels.nki.referee.rows import Rows

DENSE = 0.9  # of a region's elements that are wrong: it is the region that is wrong
MOST_LOOKED_AT = 1 << 20  # of the wrong elements, to see what they hold
ALIKE = 1e-3  # factors that differ by less are one


def words(
    wrong: np.ndarray, got: np.ndarray, expected: np.ndarray, rows: Rows | None = None
) -> str:
    """`12 of 4096 elements differ, all in [0:12, 127:128] (the tail of axis 1); they are 0`. `wrong` are
    booleans of the outputs' shape, or of these `rows` of it; empty where none is."""
    count = int(np.count_nonzero(wrong))
    if not count:
        return ""
    said = [f"{count} of {wrong.size} elements differ", _where(wrong, count, rows)]
    step = count // MOST_LOOKED_AT | 1
    some = np.flatnonzero(wrong.reshape(-1)[::step]) * step
    return ", ".join(filter(None, said)) + _how(*(np.ravel(one)[some] for one in (got, expected)))


def _where(wrong: np.ndarray, count: int, rows: Rows | None) -> str:
    if not wrong.ndim or count == wrong.size:
        return ""
    if count >= DENSE * wrong.size:
        return "nearly everywhere"
    axes, shape = range(wrong.ndim), [*wrong.shape]
    apart = [np.flatnonzero(wrong.any(axis=(*axes[:n], *axes[n + 1 :]))) for n in axes]
    if rows is not None:
        apart[rows.axis], shape[rows.axis] = rows.places[apart[rows.axis]], rows.total
    if count == 1:
        return f"at {tuple(int(axis[0]) for axis in apart)}"
    box = [(int(axis[0]), int(axis[-1]) + 1) for axis in apart]
    spans = list(map(_span, box, map(_step, apart), shape))
    dense = count >= DENSE * np.prod([len(axis) for axis in apart])
    said = "in" if dense else "scattered in"
    if set(spans) == {":"}:
        return "scattered"
    tails = [
        f"the tail of axis {n}"
        for n, ((low, high), axis) in enumerate(zip(box, shape, strict=True))
        if dense and low > 0 and high == axis
    ]
    return f"{said} [{', '.join(spans)}]" + (f" ({' and '.join(tails)})" if tails else "")


def _step(places: np.ndarray) -> int:
    """The distance of places that are evenly apart, else 1."""
    steps = np.unique(np.diff(places))
    return int(steps[0]) if len(steps) == 1 and len(places) > 2 else 1


def _span(box: tuple[int, int], step: int, size: int) -> str:
    low, high = box
    if box == (0, size) and step == 1:
        return ":"
    return f"{low}:{high}" + (f":{step}" if step > 1 else "")


def _how(got: np.ndarray, expected: np.ndarray) -> str:
    """What they hold, where it is the same for nearly all."""
    with np.errstate(all="ignore"):
        if not got.any():
            return "; they are 0" if len(got) else ""
        if got.dtype.kind == "f" and np.isnan(got).all():
            return "; they are NaN"
        if len(got) > 1 and (got == got[0]).all():
            return f"; all are {got[0]:.6g}"
        factors = np.asarray(got / expected, np.float64)
        factors = factors[np.isfinite(factors)]
        if len(factors) < max(2, DENSE * len(got)):
            return ""
        usual = float(np.median(factors))
        alike = np.abs(factors - usual) <= ALIKE * abs(usual)
        return f"; by a factor of {usual:.6g}" if alike.mean() > DENSE else ""
