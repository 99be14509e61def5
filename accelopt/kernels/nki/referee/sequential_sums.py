"""Arrays whose sums are taken one term after another, the longest chain there is, and whose other
results are rounded to either side.

NumPy adds in pairs, an engine may add in a line: both are honest. A reference that is given such
arrays shows what its other order makes of its result, whatever it computes. And where a step rounds
much more coarsely than what reaches it varies, as `1 + tanh(x)` does near zero, every sample would
round it alike, and as luckily: so half of all steps, drawn for each element, are rounded to the
farther of the two numbers that are next to the exact one, and with `backwards` the other half. What
is exact stays so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from accelopt.kernels.nki.referee.norms import blocks

CONTRACTED = 128  # rows that the Tensor engine contracts at once
ROWS = 256  # of a product that are worked out together: they stay in the cache
TERMS = 1 << 18  # of sums, likewise
SAME = 2.0**-40  # of a result: so near to a float32, the exact one is that


class Chained(np.ndarray):
    """A float32 array that is summed in a line, from the last term to the first where `backwards`.
    What is computed from it is one again; sums in other formats are NumPy's own."""

    backwards: bool = False
    chance: np.random.Generator | None = None

    def __array_finalize__(self, origin: object) -> None:
        """Takes the direction over from the array that this one is made of."""
        self.backwards = getattr(origin, "backwards", False)
        self.chance = getattr(origin, "chance", None)

    def __array_ufunc__(
        self, ufunc: np.ufunc, method: str, *inputs: Any, out: Any = None, **kwargs: Any
    ) -> Any:
        """The ufunc on plain arrays; sums and matrix products in a line."""
        plain = _in_single([_plain(value) for value in inputs])
        outputs = None if out is None else tuple(map(_plain, out))
        result = self._in_a_line(ufunc, method, plain, kwargs)
        if result is None and ufunc.nout == 1 and method == "__call__" and not kwargs:
            result = self._to_either_side(ufunc, plain, np.asarray(ufunc(*plain)))
        if result is None:
            if outputs is not None:
                kwargs["out"] = outputs
            result = getattr(ufunc, method)(*plain, **kwargs)
        elif outputs is not None:
            outputs[0][...] = result
        if out is not None:
            return out[0] if len(out) == 1 else out
        return self._wrapped(result)

    def __array_function__(
        self, func: Callable[..., Any], types: Any, args: Any, kwargs: Any
    ) -> Any:
        """Any other function, as NumPy has it."""
        return self._wrapped(super().__array_function__(func, types, args, kwargs))  # type: ignore[misc]

    def _wrapped(self, result: Any) -> Any:
        if type(result) is np.ndarray and result.dtype.kind == "f":
            return chained(result, backwards=self.backwards, chance=self.chance)
        if type(result) in (tuple, list):
            return type(result)(map(self._wrapped, result))
        return result

    def _in_a_line(
        self, ufunc: np.ufunc, method: str, inputs: Sequence[Any], kwargs: dict[str, Any]
    ) -> np.ndarray | None:
        """The sum or product, or None for what is neither."""
        if any(getattr(value, "dtype", None) != np.float32 for value in inputs):
            return None
        if kwargs.get("dtype") not in (None, np.dtype(np.float32), np.float32):
            return None
        if ufunc is np.add and method == "reduce" and not {"where", "initial"} & _given(kwargs):
            keep = bool(kwargs.get("keepdims"))
            return _sum(inputs[0], kwargs.get("axis", 0), keep=keep, backwards=self.backwards)
        if ufunc is np.matmul and method == "__call__" and not set(kwargs) - {"dtype"}:
            return _product(inputs[0], inputs[1], backwards=self.backwards)
        return None

    def _to_either_side(
        self, ufunc: np.ufunc, inputs: Sequence[Any], result: np.ndarray
    ) -> np.ndarray:
        """The `result` of a function of single elements, half of it rounded the other way."""
        if result.dtype != np.float32 or not result.ndim or self.chance is None:
            return result
        result = np.ascontiguousarray(result)
        whole = np.broadcast_arrays(*inputs, subok=False)
        for rows in blocks(len(result), max(1, TERMS * len(result) // max(1, result.size))):
            near = result[rows]
            exact = ufunc(*(value[rows] for value in whole), dtype=np.float64)
            bits = np.frombuffer(self.chance.bytes(-(-near.size // 8)), np.uint8)
            chosen = np.unpackbits(bits, count=near.size).reshape(near.shape) == self.backwards
            off = exact - near
            chosen &= np.isfinite(off) & (np.abs(off) > SAME * np.abs(near)) & (near != 0)
            near.view(np.int32)[...] += np.where(chosen, np.sign(off) * np.sign(near), 0).astype(
                "i4"
            )
        return result


def chained(
    values: np.ndarray, *, backwards: bool, chance: np.random.Generator | None = None
) -> Chained:
    """`values` as they are, to be summed in a line, and rounded to either side by `chance`, of which
    two samples get the same, one of them `backwards`."""
    view = values.view(Chained)
    view.backwards = backwards
    view.chance = chance
    return view


def _in_single(inputs: list[Any]) -> list[Any]:
    """`inputs` with float64 scalars as float32 beside float32 arrays: `x / np.sqrt(2)` is float64 to
    NumPy 2, and a reference that is worked out in it shows nothing of honest rounding."""
    if not any(isinstance(v, np.ndarray) and v.ndim and v.dtype == np.float32 for v in inputs):
        return inputs
    return [
        np.float32(v)
        if getattr(v, "dtype", None) == np.float64 and getattr(v, "ndim", 1) == 0
        else v
        for v in inputs
    ]


def _plain(value: Any) -> Any:
    return value.view(np.ndarray) if isinstance(value, Chained) else value


def _given(kwargs: dict[str, Any]) -> set[str]:
    """The arguments that say something: `np.mean` hands all of them on."""
    nothing = (None, True, getattr(np, "_NoValue", None))
    return {name for name, value in kwargs.items() if not any(value is n for n in nothing)}


def _sum(values: np.ndarray, axis: Any, *, keep: bool, backwards: bool) -> np.ndarray:
    axes = range(values.ndim) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    summed = sorted(a % values.ndim for a in axes) if values.ndim else []
    shape = tuple(1 if a in summed else n for a, n in enumerate(values.shape))
    kept = [a for a in range(values.ndim) if a not in summed]
    terms = values.transpose(*kept, *summed).reshape(*(values.shape[a] for a in kept), -1)
    count = terms.shape[-1]
    total = np.zeros(terms.shape[:-1], values.dtype)
    if count and total.size:
        lines, sums = terms.reshape(-1, count)[:, :: -1 if backwards else 1], total.reshape(-1)
        for part in blocks(len(lines), max(1, TERMS // count)):
            sums[part] = np.add.accumulate(lines[part], axis=-1)[:, -1]
    return total.reshape(shape) if keep else total


def _product(a: np.ndarray, b: np.ndarray, *, backwards: bool) -> np.ndarray | None:
    """A matrix product, as the Tensor engine accumulates it: 128 rows of the contraction a time."""
    if a.ndim < 2 or b.ndim < 2 or a.shape[-1] != b.shape[-2]:
        return None
    count, width = a.shape[-2], b.shape[-1]
    leading = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    total = np.zeros((*leading, count, width), np.float32)
    starts = range(0, a.shape[-1], CONTRACTED)
    for rows in blocks(count, ROWS):
        part = np.empty_like(total[..., rows, :])
        for start in reversed(starts) if backwards else starts:
            summed = slice(start, start + CONTRACTED)
            np.matmul(a[..., rows, summed], b[..., summed, :], out=part)
            total[..., rows, :] += part
    return total
