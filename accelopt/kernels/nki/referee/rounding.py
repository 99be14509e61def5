"""Arrays that know how far honest rounding may move each of their elements.

A reference that is given such arrays is worked out once, exactly, and beside each value stand two ends:
what a kernel that computes in its own formats may have there. A function of single elements is taken at
both ends, so one that is flat on one side (GELU, a maximum, exp, a comparison) allows what the other side
shows. Independent errors add as the root of their squares. What is worked out once for many elements
(a row's mean) has one error for all of them, which sums add up: a fourth array is worked out with such
errors in it, each of its full size and of a sign drawn for it. No operand is known better than to its own
rounding, and a sum is rounded after every term, whatever the reference sums in. A function that knows no
such arrays raises an error, or is given ends in place of values. Who works with them has NumPy's warnings off:
a reference that loops over time asks for ten thousand of small arrays.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from operator import itemgetter
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from accelopt.kernels.nki.referee.precision import in_few_bits
from accelopt.kernels.nki.referee.uses import COMPARISONS

RANGE, UNDERFLOW = 1e38, 1e-30  # of float32 and bfloat16, and of sums that lose terms
LEAST = 2.0**-126  # normal number of both
UNIT = 2.0**-24  # unit roundoff of float32
ALIKE = 0.25  # of the slack that counts for errors that are known
MOST_IN_BLOCK = 1 << 14  # elements whose intermediate results stay in the processor's cache
WHOLE = 1 << 8, 1 << 24  # the largest number to which all are whole in bfloat16, and in float32
MOST_BITS = 16  # behind the point, of factors whose products may be summed without rounding
LOGARITHM = 1e-2  # to which an exponent is known that may be subtracted after the sum as well
CONTRACTED = 128  # rows that the Tensor engine sums before it rounds
_ARITHMETIC = (np.add, np.subtract, np.multiply, np.divide)
_SIGNS = (np.abs, np.negative)  # which round nothing
# Of numbers of few bits these round nothing, and what they are given stands as it is.
_EXACTLY: tuple[np.ufunc, ...] = (*_SIGNS, np.rint, np.floor, np.ceil, np.trunc, np.sign)
_EXACTLY += (np.square, np.sqrt, np.positive, np.signbit, np.isnan, np.isfinite, np.isinf)
_EXACTLY += (np.logical_not, np.invert)
_BILINEAR = (np.matmul, np.dot, np.einsum, np.tensordot, np.inner, np.vdot)
# Of one array, whose elements they only put elsewhere; and what reads the bits of a format.
_ARRANGE = {
    "reshape",
    "transpose",
    "swapaxes",
    "squeeze",
    "ravel",
    "flatten",
    "copy",
    "repeat",
    "take",
}
_ARRANGE |= {"expand_dims", "broadcast_to", "moveaxis", "roll", "flip", "tile", "diagonal"}
# Of whole numbers these make such, and of any numbers the others: by name, as functions and methods of arrays.
_STAY_WHOLE = {"add", "subtract", "multiply", "square", "negative", "absolute", "remainder", "fmod"}
_STAY_WHOLE |= {"maximum", "minimum", "where", "clip", "max", "min", "amax", "amin", "astype"}
_STAY_WHOLE |= {"sum", "cumsum", "prod", "matmul", "dot"}
_MAKE_WHOLE = {"rint", "floor", "ceil", "trunc", "fix", "sign", "round", "around"}
_SELECT = {"where", "negative", "absolute"}  # or give each element its sign
_BITS = ("view", "tobytes", "tofile", "byteswap", "setfield")


class Formats(NamedTuple):
    """Relative errors: of what is kept in the narrowest format of the contract, and of float32, in
    which sums are taken; the largest number of the format with the least range; whether what has
    few bits stays exact, as it does where inputs have few; what a function is given that knows no
    intervals: values (0), or of each one of its ends, drawn (1), or the other (-1); the smallest number of
    a format of little range; and whether sums of products of few bits are exact to everybody, as where what is
    made of them is rounded: others may take what follows another way, which rounds."""

    kept: float
    summed: float
    largest: float
    few_bits: bool = False
    plain: int | None = None
    least: float = 0.0
    exact_sums: bool = False


class Columns(NamedTuple):
    """The second factor of a product of matrices in float32, its columns divided by their largest magnitudes."""

    scaled: np.ndarray
    largest: np.ndarray


class Interval(NDArrayOperatorsMixin):
    """`value`, `low` and `high`, arrays of one shape and format, and `shared`, the values with errors
    in them that many elements have in common; None where there are none. Booleans and integers have ends
    too."""

    __array_priority__ = 100.0

    def __init__(
        self,
        value: np.ndarray,
        low: np.ndarray,
        high: np.ndarray,
        formats: Formats,
        shared: np.ndarray | None = None,
    ) -> None:
        self.value, self.low, self.high, self.formats = value, low, high, formats
        self.shared = shared
        self.extreme = False  # the largest, or the least, of a line
        self.selected = False  # from what is given, by what rounding does not decide
        # Numbers as rint leaves them: what is known to lie between two of them is one.
        self.whole = False
        self._view_of: tuple[Interval, Callable[[np.ndarray], Any]] | None = None

    # What an array has -------------------------------------------------------------------------

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """`plain` numbers."""
        return np.array(self.plain(), dtype=dtype, copy=copy)

    def plain(self) -> np.ndarray:
        """The values alone, for what knows no intervals: which of the ends the formats say. Raises TypeError
        where they say none, but of conditions, integers and a number that is given."""
        given = self.is_exact and self._view_of is None and not self.value.ndim
        if self.value.dtype.kind != "f" or given:
            return self.value
        if self.formats.plain is None:
            raise TypeError("its intervals would be lost")
        if not self.formats.plain:
            return self.value
        low, high = self.ends()[:: self.formats.plain]
        found = np.where(_signs(self.value), low, high)
        return np.where(np.isfinite(found), found, self.value)

    def __len__(self) -> int:
        return len(self.value)

    def __float__(self) -> float:
        return float(self.plain())

    def __int__(self) -> int:
        return int(self.value)

    def __bool__(self) -> bool:
        return bool(self.value)

    def __index__(self) -> int:
        return int(self.value.__index__())

    def __iter__(self) -> Iterator[Any]:
        if self.value.ndim == 1 and self.formats.plain is not None:
            return iter(self.plain())  # as numbers, of which a loop in Python may take very many
        return map(self._arranged, map(itemgetter, range(len(self))))

    def __getitem__(self, key: Any) -> Any:
        key = values(key)
        return self._arranged(lambda array: array[key])

    def __setitem__(self, key: Any, new: Any) -> None:
        if isinstance(key, Interval) and key.value.dtype == bool and not np.ndim(values(new)):
            key, new = ..., np.where(key, new, self)  # type: ignore[call-overload]
        self.selected = _is_given(self) and _is_given(new)
        self._take_ends()
        self.whole &= _is_whole(new)
        if self.shared is None and isinstance(new, Interval) and new.shared is not None:
            self.shared = self.value.copy()
        parts, place = (new,) * 4, values(key)
        if isinstance(new, Interval):
            parts = (new.value, new.low, new.high, with_shared(new))
        for own, part in zip((self.value, self.low, self.high, self.shared), parts, strict=True):
            if own is not None:
                own[place] = part

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name in _BITS:
            raise AttributeError(name)
        found = getattr(self.value, name)
        if name in ("T", "flat"):
            return self._arranged(np.transpose if name == "T" else np.ravel)
        if name == "tolist":
            return self.plain().tolist
        if not callable(found):
            return found
        if name in _ARRANGE:
            return lambda *a, **k: self._arranged(lambda array: getattr(array, name)(*a, **k))
        function = getattr(np, name, None)
        made = _FUNCTIONS.get(function) or (
            lambda one, *args, **kwargs: one._apply(
                lambda array, *rest, **more: getattr(array, name)(*rest, **more),
                (one, *args),
                kwargs,
            )
        )
        return lambda *args, **kwargs: _noted(made(self, *args, **kwargs), name, (self, *args))

    def astype(self, dtype: Any, *_: Any, **__: Any) -> Any:
        """In another format. float32 and float64 are the same here: neither is the kernel's."""
        wanted = np.dtype(dtype)
        if wanted.kind == "f" and wanted.itemsize > 2 and self.value.dtype.kind == "f":
            return self.copy()
        return _noted(self._in_format(wanted), "astype", (self,))

    def _in_format(self, wanted: np.dtype[Any]) -> Any:
        if self.value.dtype.kind == "f" and wanted.kind in "iu" and wanted.itemsize < 8:
            return self._in_integers(wanted)
        given = self.of_integers() if wanted.kind in "iu" else self
        found = given._apply(lambda array: array.astype(wanted), (given,), {})
        narrow = isinstance(found, Interval) and wanted.kind not in "iub"
        return found._arranged(lambda array: array.astype(np.float64)) if narrow else found

    def of_integers(self) -> Interval:
        """A sum of integers as such, which nothing rounds; who goes on in float32 may round it (its ends are
        of that format)."""
        summed = self.value.dtype.kind in "iub" and self.low.dtype.kind == "f"
        return self._like(self.value, self.value, self.value) if summed else self

    def _in_integers(self, wanted: np.dtype[Any]) -> Any:
        """In a format of integers: an end that has no place there saturates, and of a value without one
        nobody knows what becomes."""
        least, most = np.iinfo(wanted).min, np.iinfo(wanted).max
        outside = (self.value <= least - 1.0) | (self.value >= most + 1.0)
        ends = [
            np.where(outside, beyond, np.clip(end, least, most)).astype(wanted)
            for end, beyond in zip(self.ends(), (least, most), strict=True)
        ]
        true = self.value.astype(wanted)
        shared = self._with_shared(lambda array: array.astype(wanted), (self,))
        return self._around(true, ends, shared)

    # What NumPy asks of it -----------------------------------------------------------------------

    def __array_ufunc__(
        self, ufunc: np.ufunc, method: str, *inputs: Any, out: Any = None, **kwargs: Any
    ) -> Any:
        """`ufunc` on the values and on both ends of each interval."""
        name = ufunc.__name__ if method in ("__call__", "reduce", "accumulate") else ""
        result = _noted(self._ufunc(ufunc, method, inputs, kwargs), name, inputs)
        if out is None:
            return result
        out[0][...] = result
        return out[0]

    def _ufunc(self, ufunc: np.ufunc, method: str, inputs: Any, kwargs: dict[str, Any]) -> Any:
        if kwargs:
            kwargs = {k: v for k, v in kwargs.items() if k not in ("dtype", "casting")}
        if ufunc in _ARITHMETIC and method == "__call__" and not kwargs and _of_one_shape(*inputs):
            return self._arithmetic(ufunc, *inputs)
        if ufunc is np.matmul:
            return self._bilinear(ufunc, inputs, kwargs)
        if ufunc is np.add and method == "reduce":
            return _sum(inputs[0], *inputs[1:], **kwargs)
        if ufunc is np.add and method == "accumulate":
            return _cumulative(inputs[0], *inputs[1:], **kwargs)
        if method == "__call__" and len(inputs) > 1:
            inputs = _shared_by_many(inputs)
        if ufunc is np.power and method == "__call__":
            return _in_blocks(lambda some: self._power(*some), inputs)
        if method != "__call__" or ufunc.nout > 1 or kwargs:
            return self._apply(getattr(ufunc, method), inputs, kwargs)
        found = _in_blocks(lambda some: self._elementwise(ufunc, some), inputs)
        return found._settled(*inputs) if ufunc in COMPARISONS else found

    def _power(self, base: Any, exponent: Any) -> Interval:
        """A power, which may be the exponential of a multiple of a logarithm, as the hardware has it."""
        two = isinstance(base, Interval) and isinstance(exponent, Interval)
        found: Interval = self._apply(np.power, (base, exponent), {}, corners=two)
        if np.ndim(values(exponent)) == 0 and float(values(exponent)).is_integer():
            return found
        rounded = np.abs(found.value * np.log(found.value)) * self.formats.summed
        rounded = np.nan_to_num(rounded, nan=0, posinf=0)
        return found._like(found.value, found.low - rounded, found.high + rounded, found.shared)

    def _elementwise(self, ufunc: np.ufunc, inputs: Any) -> Any:
        known = [one for one in inputs if isinstance(one, Interval)]
        two = len(known) == len(inputs) == 2
        conditions = any(one.value.dtype.kind == "b" for one in known)
        if ufunc in _SIGNS and inputs[0].is_exact:
            return inputs[0]._arranged(ufunc)
        if self.formats.few_bits and ufunc.nin == 1 and ufunc not in _EXACTLY:
            formats = self.formats._replace(few_bits=False)
            given = Interval(self.value, self.low, self.high, formats, self.shared)
            given.whole = self.whole
            found = given._apply(ufunc, (given,), {})
            found.formats = self.formats
            return found
        if ufunc.nin == 1 or conditions:
            return self._apply(ufunc, inputs, {})
        if ufunc is np.divide and self.formats.few_bits:
            inputs = inputs[0], _divisor(inputs[0], inputs[1], self)
            two = isinstance(inputs[0], Interval)
        if ufunc in COMPARISONS and self.formats.few_bits and all(one.is_exact for one in known):
            # As given: there is one float32 at a threshold, and no rounding on either side of it.
            found = ufunc(*(np.asarray(values(one), np.float32) for one in inputs))
            return self._like(found, found, found)
        if ufunc in (np.equal, np.not_equal):
            return self._alike(ufunc, *inputs)
        if two and ufunc in _ARITHMETIC:
            return self._arithmetic(ufunc, *inputs)
        return self._apply(ufunc, inputs, {}, corners=two)

    def _settled(self, first: Any, second: Any) -> Interval:
        """Conditions that rounding decides, of two of which one is compared with a line of the other: what alone
        in a line equals that one is where it comes from (a row's maximum), and moves with it. The others a kernel
        decides all in its way, which sums add up: `shared` has all of a line as fewer of them are."""
        undecided = np.asarray(self.low != self.high)
        if not undecided.any():
            return self
        one, other = (np.asarray(values(each)) for each in (first, second))
        lines = _lines(one, other)
        if lines:
            same = np.asarray(one == other)
            alone = same & (same.sum(axis=lines, keepdims=True) == 1)
            self.low, self.high = (np.where(alone, self.value, end) for end in self.parts()[1:3])
            undecided &= ~alone
        counts = [
            np.count_nonzero(
                undecided & own, axis=lines or (-1 if self.value.ndim else None), keepdims=True
            )
            for own in (self.value, ~self.value)
        ]
        shared = np.where(undecided, counts[0] < counts[1], with_shared(self))
        return self._like(self.value, self.low, self.high, shared)

    def _alike(self, ufunc: np.ufunc, first: Any, second: Any) -> Any:
        """Whether two are equal: they may be where their ends overlap, and are for sure where both are known."""
        pairs = (one.ends() if isinstance(one, Interval) else (one, one) for one in (first, second))
        (a, b), (c, d) = pairs
        able = (a <= d) & (c <= b)
        sure = able & (a == b) & (c == d)
        ends = (sure, able) if ufunc is np.equal else (~able, ~sure)
        shared = self._with_shared(ufunc, (first, second))
        return self._around(ufunc(values(first), values(second)), ends, shared)

    def _arithmetic(self, ufunc: np.ufunc, first: Interval, second: Interval) -> Interval:
        """A sum, difference, product or quotient of two, by how far each is from its value."""
        value, shared = ufunc(first.value, second.value), None
        if first.shared is not None or second.shared is not None:
            shared = ufunc(with_shared(first), with_shared(second))
        one = first.errors(value.ndim)
        if ufunc is np.divide:  # a product with what the divisor's ends make of its reciprocal
            second = second._reciprocal()
            other = _lined_up([apart(e, second.value) for e in second.parts()[1:3]], value.ndim)
        else:
            other = second.errors(value.ndim)
        if ufunc in (np.add, np.subtract):
            errors = [one, other if ufunc is np.add else other[::-1]]
        else:
            joint = one * other
            if len(joint) > 1:
                np.maximum(joint[0], joint[1], out=joint[1, ...])
                if len(one) == len(other):
                    crossed = one * other[::-1]
                    np.maximum(crossed[0], crossed[1], out=joint[0, ...])
                else:
                    joint = joint[1:]
            errors = [_scaled(one, second.value), _scaled(other, first.value), joint]
        far = _known(_root(*errors))
        if ufunc is np.subtract and first.extreme != second.extreme:
            itself = _itself(first, second) & (far <= LOGARITHM).all(axis=0)
            far = np.where(itself, 0, far)
            shared = None if shared is None else np.where(itself, value, shared)
        return self._like(value, value - far[0], value + far[-1], shared)

    def _reciprocal(self) -> Interval:
        low, high = self.ends()
        ends = [np.reciprocal(low), np.reciprocal(high)]
        through = np.signbit(low) != np.signbit(high)
        if through.any():  # zero, near which it may be any
            pairs = zip((np.inf, -np.inf), ends, strict=True)
            ends = [np.where(through, far, end) for far, end in pairs]
        found: Interval = self._around(np.reciprocal(self.value), ends)
        return found

    def __array_function__(
        self, func: Callable[..., Any], types: Any, args: Any, kwargs: dict[str, Any]
    ) -> Any:
        """Sums and products as such; any other function at both ends of all intervals."""
        if (out := kwargs.pop("out", None)) is not None:
            out[...] = func(*args, **kwargs)
            return out
        return _noted(self._function(func, args, kwargs), func.__name__, (*args, *kwargs.values()))

    def _function(self, func: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Any:
        if func in _FUNCTIONS:
            return _FUNCTIONS[func](*args, **kwargs)
        if func.__name__ in _ARRANGE and isinstance(args[0], Interval):
            return args[0]._arranged(lambda array: func(array, *args[1:], **kwargs))
        if func in _BILINEAR:
            return self._bilinear(func, args, kwargs)
        if func is np.where and len(args) == 3:
            return _in_blocks(lambda some: self._apply(func, some, {}), args)
        return self._apply(func, args, kwargs)

    # How the ends come about ----------------------------------------------------------------------

    def parts(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray | None]:
        """The arrays."""
        return self.value, self.low, self.high, self.shared

    def _like(self, value: Any, low: Any, high: Any, shared: Any = None) -> Interval:
        shared = None if shared is None else np.asarray(shared)
        return Interval(np.asarray(value), np.asarray(low), np.asarray(high), self.formats, shared)

    def _arranged(self, function: Callable[[np.ndarray], Any]) -> Interval:
        """The same elements elsewhere."""
        value = function(self.value)
        if self.is_exact:
            found = self._like(value, value, value)
            found._view_of, found.whole = (self, function), self.whole
            return found
        own = self.shared_by_many() if value.size > self.value.size else self
        shared = None if own.shared is None else function(own.shared)
        found = self._like(value, function(self.low), function(self.high), shared)
        found.extreme, found.whole, found.selected = self.extreme, self.whole, self.selected
        return found

    def shared_by_many(self) -> Interval:
        """Where each element is used for many: its error is one that these have in common."""
        exact = self.is_exact or np.array_equal(self.low, self.high)
        if exact or self.value.dtype.kind != "f":
            return self
        shared = np.where(_signs(self.value), *self.ends())
        shared = np.where(np.isfinite(shared), shared, self.value)
        found = self._like(self.value, self.low, self.high, shared)
        found.extreme, found.whole, found.selected = self.extreme, self.whole, self.selected
        return found

    def _with_shared(self, function: Callable[..., Any], args: Any, kwargs: Any = None) -> Any:
        """`function` at the values with shared errors; None where there are none. Where these are
        undefined nothing is judged, and elsewhere they say nothing."""
        if not any(one.shared is not None for one in _intervals_in((args, kwargs))):
            return None
        return function(*values(args, with_shared), **values(kwargs or {}, with_shared))

    def _product_with_shared(
        self,
        function: Callable[..., Any],
        args: list[Any],
        kwargs: Any,
        value: np.ndarray,
        columns: Columns | None,
    ) -> Any:
        """The same of a product that has this value: where one factor alone has such errors, of these; with
        `columns`, those of the second."""
        own = [
            n for n, one in enumerate(args) if isinstance(one, Interval) and one.shared is not None
        ]
        if len(own) != 1 or function is not np.matmul:
            return self._with_shared(function, args, kwargs)
        plain = [np.asarray(one, np.float64) for one in values(args)]
        plain[own[0]] = args[own[0]].shared - plain[own[0]]
        if own == [1] or columns is None:
            columns = _in_columns(plain[1])
        errors = _product_in_single(plain[0], columns)
        return self._with_shared(function, args, kwargs) if errors is None else value + errors

    @property
    def is_exact(self) -> bool:
        """True for what is given, or made of it by putting elements elsewhere."""
        return self.low is self.value and self.high is self.value

    def _take_ends(self) -> None:
        """Ends of its own for what was exact and is written into: those of what it is a view of."""
        if not self.is_exact:
            return
        if self._view_of is None:
            self.low, self.high = self.value.copy(), self.value.copy()
        else:
            parent, view = self._view_of
            parent._take_ends()
            self.low, self.high = np.asarray(view(parent.low)), np.asarray(view(parent.high))

    def errors(self, dimensions: int = 0) -> np.ndarray:
        """How far the ends are below and above the value, its rounding at least: along the first axis, of
        one element where both are the same. The axes of the value follow, at least so many."""
        if self.value.dtype.kind != "f" or self.formats.largest < RANGE:
            return _lined_up([apart(end, self.value) for end in self.ends()], dimensions)
        rounded = self._rounding()
        if self.is_exact:
            found = _known(rounded[None])
            if np.count_nonzero(infinite := np.isinf(self.value)):
                rounded[infinite] = 0
        else:
            found = np.empty((2, *self.value.shape))
            np.subtract(self.value, self.low, out=found[0, ...])
            np.subtract(self.high, self.value, out=found[1, ...])
            np.maximum(found, rounded, out=found)
            if np.count_nonzero(unknown := np.isnan(found)):
                np.putmask(found, unknown, np.inf)
                infinite = np.isinf(self.value)
                if np.count_nonzero(infinite):  # and an end that is the same
                    np.equal(self.low, self.value, out=unknown[0, ...])
                    np.equal(self.high, self.value, out=unknown[1, ...])
                    unknown &= infinite
                    np.putmask(found, unknown, 0)
        return found if found.ndim > dimensions else _lined_up(found, dimensions)

    @property
    def rounds_alike(self) -> bool:
        """True where every element is rounded by the same part of it."""
        return not self.formats.few_bits and self.formats.largest >= RANGE

    def _rounding(self) -> np.ndarray:
        rounded = np.asarray(np.abs(self.value) * self.formats.kept)
        least = LEAST * self.formats.kept
        if np.count_nonzero(small := rounded < least):
            small &= self.value != 0
            np.putmask(rounded, small, LEAST)
        if self.formats.largest < RANGE:
            rounded += self.formats.least
        if self.whole:
            most = WHOLE[self.formats.kept == self.formats.summed]
            rounded[np.abs(self.value) <= most] = 0
        if self.formats.few_bits:
            rounded[in_few_bits(self.value)] = 0
        return rounded

    def ends(self) -> tuple[np.ndarray, np.ndarray]:
        """The ends of what stands in a register or a tile: its rounding at least."""
        if self.value.dtype.kind != "f":
            return self.low, self.high
        rounded = self._rounding()
        low, high = self.value - rounded, self.value + rounded
        low, high = np.fmin(low, self.low), np.fmax(high, self.high)
        if self.formats.largest < RANGE:  # what overflows may become anything
            low = np.where(low < -self.formats.largest, -np.inf, low)
            high = np.where(high > self.formats.largest, np.inf, high)
        return low, high

    def _apply(
        self, function: Callable[..., Any], args: Any, kwargs: Any, *, corners: bool = False
    ) -> Any:
        """`function` at the values and at both ends; with `corners`, at each end of each of two."""
        known = {id(one): one.ends() for one in _intervals_in((args, kwargs))}
        at = [lambda one: known[id(one)][0], lambda one: known[id(one)][1]]
        true = function(*values(args), **values(kwargs))
        if isinstance(true, np.ndarray) and true.dtype.kind == "c":  # which has no ends
            return function(*values(args, Interval.plain), **values(kwargs, Interval.plain))
        ends = [function(*values(args, end), **values(kwargs, end)) for end in at]
        if corners:
            ends += [function(values(args[0], a), values(args[1], b)) for a, b in (at, at[::-1])]
        return self._around(true, ends, self._with_shared(function, args, kwargs))

    def _around(self, true: Any, ends: Sequence[Any], shared: Any = None) -> Any:
        if isinstance(true, (tuple, list)):
            shared = [None] * len(true) if shared is None else shared
            each = zip(true, zip(*ends, strict=True), shared, strict=True)
            found = [self._around(*one) for one in each]
            return type(true)(found) if type(true) in (tuple, list) else tuple(found)
        array = np.asarray(true)
        if array.dtype.kind == "O":  # what a function of Python made of each element
            array, *ends = (np.asarray(one, np.float64) for one in (true, *ends))
        if array.dtype.kind not in "bfiuV":
            return true
        least, most = reduce(np.minimum, ends), reduce(np.maximum, ends)
        if array.dtype.kind == "f" and np.isnan(np.min(least, initial=0)):
            # A function that is undefined at an end may be anything.
            unknown = np.isnan(least) & ~np.isnan(array)
            least, most = np.where(unknown, -np.inf, least), np.where(unknown, np.inf, most)
        return self._like(array, np.minimum(least, array), np.maximum(most, array), shared)

    def _bilinear(self, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """A product that sums: the errors of its terms, and what is rounded between them."""
        places = [n for n, arg in enumerate(args) if isinstance(values(arg), np.ndarray)]
        if len(places) != 2:
            return self._apply(function, args, kwargs)
        shape = np.shape(values(args[1]))
        if function in (np.matmul, np.dot) and shape[1:] in ((), (1,)) and not kwargs:
            vector = args[1] if len(shape) == 1 else args[1][:, 0]  # no work for the Tensor engine
            return _sum(args[0] * vector, -1, keepdims=len(shape) > 1)
        value = np.asarray(function(*values(args), **kwargs))
        first, second = (args[n] for n in places)
        terms = _terms(values(first), values(second), value)
        steps = terms / CONTRACTED * self.formats.summed**2

        def product(one: np.ndarray, other: np.ndarray) -> Any:
            changed = list(args)
            changed[places[0]], changed[places[1]] = one, other
            return function(*changed, **kwargs)

        columns = _in_columns(values(second)) if function is np.matmul else None
        total = _squared_errors(product, first, second, steps / 2, columns)
        # In place: new memory for each step would cost more than the step.
        total, further = (_known(np.asarray(total)), np.asarray(np.square(value, dtype=np.float64)))
        further *= steps / 3
        total += further
        shared = self._product_with_shared(function, [*map(_finite, args)], kwargs, value, columns)
        if shared is not None:
            total += np.square(np.subtract(shared, value, out=further), out=further)
        far = np.sqrt(total, out=total)
        scale = _whole_by(first) * _whole_by(second) if self.formats.exact_sums else 0
        if scale and shared is None:
            sizes = (np.abs(values(one), dtype=np.float64) for one in (first, second))
            far = np.where(product(*sizes) * scale <= WHOLE[1], 0, far)
        return self._like(value, value - far, value + far, shared)


def given_as(value: Any, formats: Formats, *, number: bool) -> Any:
    """An input as a reference is given it that is worked out with intervals: integers stay, but those that
    are a `number` to reckon with, for what is made of them is rounded."""
    if not isinstance(value, np.ndarray):
        return value
    if value.dtype.kind == "f":
        return intervals(value.astype(np.float64), formats)
    reckoned = number and value.dtype.kind in "iu"
    return intervals(value.copy(), formats) if reckoned else value.copy()


def intervals(given: np.ndarray, formats: Formats) -> Interval:
    """`given` as they are given: exact but for one rounding."""
    return Interval(given, given, given, formats)


def _whole_by(factor: Any) -> float:
    """The power of two that makes whole numbers of what is known exactly and has few bits; 0 for others."""
    if error_of(factor).any() or not np.isfinite(values(factor)).all():
        return 0.0
    found = (2.0**n for n in range(MOST_BITS) if not np.mod(np.ldexp(values(factor), n), 1).any())
    return next(found, 0.0)


def _divisor(dividend: Any, given: Any, like: Interval) -> Any:
    """A divisor of few bits has a reciprocal of many, whose product is the quotient for some dividends alone."""
    divisor = (
        given if isinstance(given, Interval) else intervals(np.asarray(given, float), like.formats)
    )
    one, other = (np.asarray(values(n), np.float32) for n in (dividend, divisor))
    quotient = np.divide(one, other)
    exact = (quotient == one * np.reciprocal(other)) & (
        quotient == values(dividend) / divisor.value
    )
    rounded = np.where(exact, 0, np.abs(divisor.value) * like.formats.kept)
    least, most = divisor.value - rounded, divisor.value + rounded
    least, most = np.minimum(least, divisor.low), np.maximum(most, divisor.high)
    value, shared = (
        None if n is None else np.broadcast_to(n, exact.shape)
        for n in (divisor.value, divisor.shared)
    )
    return divisor._like(value, least, most, shared)


def _in_blocks(function: Callable[[Sequence[Any]], Any], operands: Sequence[Any]) -> Any:
    """A function of single elements, of large arrays in blocks that stay in the processor's cache."""
    shapes = _shapes(operands)
    alike = shapes.count(shapes[0]) == len(shapes)
    shape = shapes[0] if alike else np.broadcast_shapes(*shapes)
    if math.prod(shape) <= MOST_IN_BLOCK:
        return function(operands)
    found: Interval | None = None
    for place in _places(shape):
        part = function([_at(one, place, len(shape)) for one in operands])
        if found is None:
            parts = [None if one is None else np.empty(shape, one.dtype) for one in part.parts()]
            found = part._like(*parts)
        for whole, one in zip(found.parts(), part.parts(), strict=True):
            if whole is not None:
                whole[place] = one
    return found


def _places(shape: tuple[int, ...]) -> Iterator[tuple[int | slice, ...]]:
    """Where parts of at most so many elements lie in an array of this shape."""
    inner = math.prod(shape[1:])
    if inner > MOST_IN_BLOCK:
        for at in range(shape[0]):
            yield from ((at, *rest) for rest in _places(shape[1:]))
    else:
        step = max(1, MOST_IN_BLOCK // max(1, inner))
        yield from ((slice(start, start + step),) for start in range(0, shape[0], step))


def _at(operand: Any, place: tuple[int | slice, ...], dimensions: int) -> Any:
    """The part of an operand that lies at a place of a result of so many dimensions."""
    shape = np.shape(values(operand))
    own = place[dimensions - len(shape) :]
    if not own:
        return operand
    key = tuple(
        at if size > 1 else 0 if isinstance(at, int) else slice(None)
        for at, size in zip(own, shape, strict=False)
    )

    def part(array: np.ndarray) -> np.ndarray:  # which is walked many times
        return np.asarray(array[key], order="C")

    return operand._arranged(part) if isinstance(operand, Interval) else part(np.asarray(operand))


def _shapes(operands: Sequence[Any]) -> list[tuple[int, ...]]:
    return [one.value.shape if isinstance(one, Interval) else np.shape(one) for one in operands]


def _shared_by_many(operands: Sequence[Any]) -> Sequence[Any]:
    """`operands` of a function of single elements, of which some may be smaller than its result."""
    shapes = _shapes(operands)
    if shapes.count(shapes[0]) == len(shapes):
        return operands
    count = math.prod(np.broadcast_shapes(*shapes))
    return [
        one.shared_by_many() if isinstance(one, Interval) and one.value.size < count else one
        for one in operands
    ]


def _of_one_shape(first: Any, second: Any) -> bool:
    """True for two small intervals of one shape, numbers in floating point that have many bits."""
    return (
        isinstance(first, Interval)
        and isinstance(second, Interval)
        and first.value.shape == second.value.shape
        and first.value.size <= MOST_IN_BLOCK
        and first.value.dtype.kind == second.value.dtype.kind == "f"
        and not first.formats.few_bits
    )


def _signs(like: np.ndarray) -> np.ndarray:
    """For each element which of two ends, drawn."""
    return np.asarray(np.random.default_rng(like.size).random(like.shape) < 0.5)


def _lines(one: np.ndarray, other: np.ndarray) -> tuple[int, ...]:
    """The axes of a result of two along which one of them has a single element."""
    dimensions = max(one.ndim, other.ndim)
    shapes = ((1,) * (dimensions - each.ndim) + each.shape for each in (one, other))
    return tuple(n for n, sizes in enumerate(zip(*shapes, strict=True)) if sizes[0] != sizes[1])


def _itself(one: Interval, other: Interval) -> np.ndarray:
    """Where an element of one is the extreme of its line that stands in the other, which no other of the line
    may be."""
    (a, b), (c, d) = one.ends(), other.ends()
    able = (a <= d) & (c <= b)
    alone = able.sum(axis=_lines(one.value, other.value), keepdims=True) == 1
    return np.asarray((one.value == other.value) & alone)


def _finite(operand: Any) -> Any:
    """`operand` without shared errors that are undefined or infinite: there nothing is judged, and of
    other elements they say nothing."""
    if not isinstance(operand, Interval) or operand.shared is None:
        return operand
    shared = np.where(np.isfinite(operand.shared), operand.shared, operand.value)
    return operand._like(operand.value, operand.low, operand.high, shared)


def _noted(found: Any, name: str, given: Sequence[Any]) -> Any:
    """What a function of this name made of what is given; of whole numbers alone it may be such, and of what was
    selected this still, wherever its blocks end."""
    if isinstance(found, Interval) and not found.is_exact:
        found.whole = name == "floor_divide" or (name in _MAKE_WHOLE and len(given) == 1)
        found.whole |= name in _STAY_WHOLE and all(map(_is_whole, given))
        if name in _SELECT:
            found.selected = all(map(_is_given, given))
    return found


def _is_whole(given: Any) -> bool:
    """True of whole numbers: integers, constants and inputs that are such, and what is made of them by what leaves
    them so. What else is whole by its values (1 + erf(9)) honest forms may round."""
    array = np.asarray(values(given))
    if array.dtype.kind != "f":
        return True
    if isinstance(given, Interval) and (given.whole or not given.is_exact):
        return given.whole
    parts = (array.flat[:1], array)  # of which the first tells nearly always
    return all(np.array_equal(part, np.rint(part)) for part in parts)


def _is_given(operand: Any) -> bool:
    """True of numbers that nothing rounds, and of conditions that rounding does not decide."""
    if not isinstance(operand, Interval) or operand.is_exact or operand.selected:
        return True
    return operand.value.dtype.kind != "f" and np.array_equal(operand.low, operand.high)


def _intervals_in(given: Any) -> Iterator[Interval]:
    if isinstance(given, Interval):
        yield given
    elif type(given) in (tuple, list):
        for one in given:
            yield from _intervals_in(one)
    elif type(given) is dict:
        yield from _intervals_in([*given.values()])


def with_shared(given: Interval) -> np.ndarray:
    """The values with shared errors."""
    return given.value if given.shared is None else given.shared


def values(given: Any, end: Callable[[Interval], np.ndarray] | None = None) -> Any:
    """Plain arrays in place of intervals: the values, or what `end` makes of each."""
    if isinstance(given, Interval):
        return given.value if end is None else end(given)
    if type(given) in (tuple, list):
        return type(given)(values(one, end) for one in given)
    if type(given) is dict:
        return {name: values(one, end) for name, one in given.items()}
    return given


def apart(end: Any, true: np.ndarray) -> np.ndarray:
    """How far an end is from the value."""
    with np.errstate(all="ignore"):
        far = np.asarray(np.abs(np.subtract(end, true, dtype=np.float64)))
        if math.isfinite(np.max(far, initial=0)):
            return far
        same = np.asarray(end) == true
    return np.where(same, 0, np.nan_to_num(far, nan=np.inf, posinf=np.inf))


def error_of(given: Any) -> np.ndarray:
    """How far each element may be from its value, its own rounding at least; zero for what is known."""
    if not isinstance(given, Interval):
        return np.zeros(np.shape(given))
    below, *above = given.errors()
    return np.asarray(reduce(np.maximum, above, below))


def known(given: Any) -> tuple[np.ndarray, np.ndarray]:
    """The value of each element and how far it may be from that; of a whole number, what lies in the middle
    of its ends, of which one may be farther from its value than the other."""
    if not isinstance(given, Interval) or given.value.dtype.kind not in "iub":
        return np.asarray(values(given)), error_of(given)
    low, high = (np.asarray(end, np.float64) for end in given.of_integers().parts()[1:3])
    return (low + high) / 2, (high - low) / 2


def _lined_up(errors: Sequence[np.ndarray] | np.ndarray, dimensions: int) -> np.ndarray:
    """Arrays along a first axis, with axes before their own for so many in all."""
    found = np.asarray(errors)
    missing = (1,) * (dimensions + 1 - found.ndim)
    return found.reshape(len(found), *missing, *found.shape[1:]) if missing else found


def _squares(operand: Any) -> tuple[np.ndarray, np.ndarray]:
    """The squares of values and radii."""
    return np.square(values(operand), dtype=np.float64), np.square(error_of(operand))


def _squared_errors(
    product: Callable[[np.ndarray, np.ndarray], Any],
    first: Any,
    second: Any,
    steps: float,
    columns: Columns | None,
) -> Any:
    """What errors of the factors' elements, each alone and together, and `steps` of each term make of a
    product's elements, squared."""
    a, ra = _squares(first)
    if not (isinstance(second, Interval) and second.is_exact and second.rounds_alike):
        b = np.square(values(second), dtype=np.float64)
        return product(ra + steps * a, b) + product(a + ra, np.square(error_of(second)))
    relative = second.formats.kept**2
    a = (relative + steps) * a + (1 + relative) * ra
    found = _product_in_single(a, columns and Columns(*map(np.square, columns)))
    return product(a, np.square(second.value)) if found is None else found


def _largest(factor: np.ndarray, axis: int) -> np.ndarray | None:
    """The largest magnitude along an axis, 1 where all are zero; None of vectors, and where one is not finite."""
    if factor.ndim < 2:
        return None
    most = np.maximum(
        factor.max(axis=axis, keepdims=True),
        -factor.min(axis=axis, keepdims=True),
        dtype=np.float64,
    )
    most[most == 0] = 1
    return most if np.isfinite(most.sum()) else None


def _in_columns(factor: np.ndarray) -> Columns | None:
    most = _largest(factor, -2)
    return None if most is None else Columns((factor / most).astype(np.float32), most)


def _product_in_single(a: np.ndarray, b: Columns | None) -> np.ndarray | None:
    """A product of matrices in float32, of rows and columns as large as 1: the terms that vanish there are
    nothing beside the largest of their sum. None of vectors, and of what is not finite."""
    if b is None or (rows := _largest(a, -1)) is None:
        return None
    found = np.matmul((a / rows).astype(np.float32), b.scaled)
    return np.asarray(found * rows * b.largest)


def _scaled(errors: np.ndarray, factor: np.ndarray) -> np.ndarray:
    """How far below and above a product is when one factor is, and the other is `factor`."""
    found: np.ndarray = errors * factor
    if len(found) == 1:
        np.abs(found, out=found)
        return found
    turned: np.ndarray = np.negative(found[::-1])
    np.maximum(found, turned, out=turned)
    return turned


def _root(*errors: np.ndarray) -> np.ndarray:
    """What independent errors are together, of arrays that are lost with it: new memory costs more than a square."""
    total, *others = errors
    np.square(total, out=total)
    for square in others:
        np.square(square, out=square)
        total = np.add(total, square, out=total if total.shape == square.shape else None)
    np.sqrt(total, out=total)
    return total


def _known(far: np.ndarray) -> np.ndarray:
    """An error of which nothing is known may be any."""
    if np.count_nonzero(unknown := np.isnan(far)):
        np.putmask(far, unknown, np.inf)
    return far


def _terms(a: np.ndarray, b: np.ndarray, product: np.ndarray) -> float:
    """How many terms each element of a product of two arrays sums."""
    return max(1.0, float(np.sqrt(a.size * b.size / max(1, product.size))))


def _sum(
    x: Interval,
    axis: Any = None,
    dtype: Any = None,
    out: Any = None,
    keepdims: Any = False,
    **more: Any,
) -> Any:
    """A sum in a line, in float32."""
    more = {name: value for name, value in more.items() if value is not np._NoValue}
    keepdims = keepdims is True
    if more.get("where", True) is not True or "initial" in more:
        x = np.where(more.pop("where", True), x, 0) + 0 * x  # type: ignore[call-overload]
        return _sum(x, axis, keepdims=keepdims) + more.get("initial", 0)
    axes = range(x.ndim) if axis is None else np.atleast_1d(axis) % x.ndim
    summed = sorted(int(a) for a in axes)
    kept = [a for a in range(x.ndim) if a not in summed]
    lines = x.value.transpose(*kept, *summed).reshape(*(x.shape[a] for a in kept), -1)
    total = np.asarray(x.value.sum(axis=tuple(summed), keepdims=keepdims))
    partial = _inexact(lines, np.cumsum(lines, axis=-1, dtype=np.float64))
    rounded = np.einsum("...i,...i->...", partial, partial).reshape(total.shape)
    if lines.shape[-1]:  # of terms that are alike, roundings do not cancel
        power = 0  # what is too small for float32 is no rounding
        if np.abs(total).min(initial=1) < UNDERFLOW:
            power = np.frexp(np.abs(lines).max(axis=-1, keepdims=True))[1]
        singles = np.ldexp(lines, -power).astype(np.float32)
        line = np.ldexp(np.add.accumulate(singles, axis=-1)[..., -1:].astype(float), power)
        line = line.reshape(total.shape)
        rounded = np.fmax(rounded, np.square((line - total) * (ALIKE / UNIT)))
    rounded = rounded * x.formats.summed**2
    # What is added to much more is lost at most, in any order.
    sizes = np.abs(lines, dtype=np.float64)
    steps = x.formats.summed * sizes.sum(axis=-1, keepdims=True)
    lost = np.minimum(sizes, steps).sum(axis=-1).reshape(total.shape)
    rounded = np.minimum(rounded, np.square(lost))
    return _summed(x, total, rounded, lambda a: a.sum(tuple(summed), keepdims=keepdims))


def _summed(
    x: Interval, total: np.ndarray, rounded: np.ndarray, function: Callable[[np.ndarray], Any]
) -> Interval:
    """Sums with their errors, `rounded` those of partial sums, squared. Independent ones add as squares,
    those that terms have in common add up; no sum is beyond that of its terms' ends."""
    shared = None if x.shared is None else function(with_shared(_finite(x)))
    common = 0.0 if shared is None else np.square(shared - total)
    below, *above = (
        np.fmin(
            np.sqrt(function(np.square(far)) + rounded + common), function(far) + np.sqrt(rounded)
        )
        for far in x.errors()
    )
    low, high = total - below, total + (above[0] if above else below)
    if total.dtype.kind in "iu" and not np.array_equal(x.low, x.high):
        low, high = (np.rint(end).astype(total.dtype) for end in (low, high))
    return x._like(total, low, high, shared)


def _inexact(terms: np.ndarray, partial: np.ndarray) -> np.ndarray:
    """Those partial sums that are rounded in float32: of zeros, and of numbers of few bits, none is."""
    return np.where((terms == 0) | (partial == partial.astype(np.float32)), 0, partial)


def _cumulative(x: Interval, axis: Any = None, dtype: Any = None, out: Any = None) -> Any:
    if axis is None:
        x, axis = x.reshape(-1), 0
    partial = np.cumsum(x.value, axis=axis)
    rounded = np.cumsum(np.square(_inexact(x.value, partial)), axis=axis) * x.formats.summed**2
    return _summed(x, partial, rounded, lambda a: np.cumsum(a, axis=axis))


def _mean(x: Interval, axis: Any = None, dtype: Any = None, out: Any = None, **more: Any) -> Any:
    total = _sum(x, axis, **more)
    # A sum has the range of float32, also where what it is a mean of has less.
    total.formats = x.formats._replace(largest=RANGE)
    found = total / (x.size / max(1, total.size))
    found.formats = x.formats
    if not x.formats.few_bits:
        return found
    # A sum of few bits may be exact; a mean that is kept up to date, as Welford's, rounds in each step.
    squares = np.mean(np.square(x.value), axis, keepdims=more.get("keepdims") is True)
    far = x.formats.summed * np.sqrt(squares)
    return found._like(found.value, found.low - far, found.high + far, found.shared)


def _variance(
    x: Interval, axis: Any = None, dtype: Any = None, out: Any = None, ddof: int = 0, **more: Any
) -> Any:
    squares = np.square(x - _mean(x, axis, keepdims=True))
    total = _sum(squares, axis, **more)
    return total / (x.size / max(1, total.size) - ddof)


def _argsort(x: Interval, axis: Any = -1, *args: Any, **more: Any) -> Interval:
    """Indices in the order of their elements. Where honest rounding decides on the order of some, each may be
    any of theirs; what is equal as it is given stays in its order, and so does in a stable one what a mask selects,
    where many are equal that stand for others."""
    found = np.argsort(x.value, axis, *args, **more)
    stable = more.get("stable") or more.get("kind") == "stable"
    if x.is_exact or (x.selected and stable) or axis is None or not found.size:
        return x._like(found, found, found)
    lines = np.moveaxis(found, axis, -1)
    low, high = (np.take_along_axis(np.moveaxis(end, axis, -1), lines, -1) for end in _flushed(x))
    after = np.minimum.accumulate(low[..., ::-1], axis=-1)[..., ::-1]
    settled = np.ones(lines.shape, bool)  # where all before are less
    settled[..., 1:] = np.maximum.accumulate(high, axis=-1)[..., :-1] < after[..., 1:]
    starts = np.flatnonzero(settled)
    counts = np.diff(starts, append=settled.size)
    low, high = (
        np.moveaxis(
            np.repeat(f.reduceat(lines.ravel(), starts), counts).reshape(lines.shape), -1, axis
        )
        for f in (np.minimum, np.maximum)
    )
    return x._like(found, low, high)


def _argmax(x: Interval, axis: Any = None, **more: Any) -> Interval:
    """The index of the largest; of those that honest rounding may make the largest, any."""
    found = np.argmax(x.value, axis, **more)
    if _is_given(x) or not x.value.size:
        return x._like(found, found, found)
    low, high = _flushed(x)
    able = high >= np.max(low, axis, keepdims=True)
    last = (able.size if axis is None else able.shape[axis]) - 1
    return x._like(
        found, np.argmax(able, axis, **more), last - np.argmax(np.flip(able, axis), axis, **more)
    )


def _flushed(x: Interval) -> tuple[np.ndarray, np.ndarray]:
    """Ends between which zero is where a number may be lost."""
    low, high = x.ends()
    return low - LEAST, high + LEAST


def _extreme(function: Callable[..., Any]) -> Callable[..., Any]:
    """The largest, or the least, of lines."""

    def found(x: Interval, *args: Any, **kwargs: Any) -> Any:
        one = x._apply(function, (x, *args), kwargs)
        if isinstance(one, Interval):
            one.extreme = True
        return one

    return found


_FUNCTIONS: dict[Any, Callable[..., Any]] = {
    **{one: _extreme(one) for one in (np.max, np.amax, np.min, np.amin)},
    np.sum: _sum,
    np.cumsum: _cumulative,
    np.mean: _mean,
    np.var: _variance,
    np.argsort: _argsort,
    np.argmax: _argmax,
    np.argmin: lambda x, *args, **kwargs: _argmax(-x, *args, **kwargs),
    np.std: lambda *args, **kwargs: np.sqrt(_variance(*args, **kwargs)),
}


class Namespace(ModuleType):
    """NumPy for a reference that is given intervals: what it makes anew can hold them, and what it asks
    to be an array is one."""

    def __init__(self, formats: Formats) -> None:
        super().__init__("numpy")
        self._formats = formats

    def __getattr__(self, name: str) -> Any:
        found = getattr(np, name)
        if name in ("asarray", "array", "ascontiguousarray", "asanyarray"):
            return lambda given, dtype=None, **more: self._as_array(found, given, dtype, more)
        if name in ("zeros", "empty", "ones", "full", "zeros_like", "empty_like", "full_like"):
            return lambda *args, **kwargs: self._made(found(*values(args), **values(kwargs)))
        if found is np.vectorize:
            return lambda function, *args, **kwargs: vectorized(found(function, *args, **kwargs))
        return found

    def _as_array(
        self, function: Callable[..., Any], given: Any, dtype: Any, more: dict[str, Any]
    ) -> Any:
        """An array; of numbers of Python, which it may have made of its inputs, one that is rounded."""
        found = _as_array(function, given, dtype, more)
        made = self._formats.plain is not None and isinstance(given, list)
        return self._made(found) if made and isinstance(found, np.ndarray) else found

    def _made(self, array: np.ndarray) -> Any:
        if array.dtype.kind != "f":
            return array
        return intervals(array.astype(np.float64), self._formats)


def vectorized(function: np.vectorize) -> Callable[..., Any]:
    """The function at the values and at both ends of intervals, which NumPy's own would take for plain
    numbers: what cancels after it, as in 1 + erf(-8), would then be exact."""

    def call(*args: Any, **kwargs: Any) -> Any:
        given = [*_intervals_in((args, kwargs))]
        if not given:
            return function(*args, **kwargs)
        two = len(given) == len(args) == 2
        return given[0]._apply(function, args, kwargs, corners=two)

    return call


def _as_array(function: Callable[..., Any], given: Any, dtype: Any, more: dict[str, Any]) -> Any:
    if isinstance(given, Interval):
        return given.copy() if dtype is None else given.astype(dtype)
    if isinstance(given, Sequence) and next(_intervals_in(given), None) is not None:
        found = np.stack([_as_array(np.asarray, one, None, {}) for one in given])
        return found if dtype is None else found.astype(dtype)
    return function(given, dtype=dtype, **more)
