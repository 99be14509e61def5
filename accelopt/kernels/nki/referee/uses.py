"""What a reference does with its inputs: an integer may be an index, a length or a number to reckon
with, which its use says and its name does not.

The reference runs once on arrays that write down how they are used. What a use says of the legal values
is then kept to (`variation.other_integers`): an index stays in its table, a length within what it is
compared with, anything that a plain conversion hides within what was drawn.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from accelopt.kernels.nki.referee.precision import is_float

COMPARISONS = (np.less, np.less_equal, np.greater, np.greater_equal, np.equal, np.not_equal)
COMPARED = {ufunc.__name__ for ufunc in COMPARISONS}
# Which argument is an index, or a count, of functions that take one; of methods the array is the first.
INDEXED = {"take": 1, "take_along_axis": 1, "put_along_axis": 1, "repeat": 1, "split": 1}
INDEXED |= {"bincount": 0, "choose": 0}
NOT_FINITE = {"isnan", "isfinite", "isinf", "nan_to_num", "fmax", "fmin", "nansum", "nanmean"}
NOT_FINITE |= {"nanmax", "nanmin", "isneginf", "isposinf"}
SCALES = (np.multiply, np.divide, np.floor_divide)
ROUNDS = {"rint", "round", "around", "floor", "ceil", "trunc", "fix", "astype to fewer bits"}
NARROWED, NARROW_ON = "astype to a narrower format", "a narrower format on the way"
# What says nothing else of two numbers that are equal, or of one halfway between whole ones.
SMOOTH = set(
    """abs absolute add arange array asarray ascontiguousarray astype broadcast_to concatenate copy cos cosh cumsum
    divide dot dtype e einsum empty empty_like errstate exp exp2 expand_dims expm1 eye flatten float32 float64 full
    full_like inner log log1p log2 matmul mean moveaxis multiply ndim negative newaxis ones ones_like outer pi
    power prod ravel reciprocal reshape shape sin sinh size sqrt square squeeze stack std subtract sum swapaxes T
    tanh tensordot transpose tri tril triu var vdot zeros zeros_like""".split()
) | {NARROWED, NARROW_ON}
# Of these what is not linear, or divides.
BENT = set(
    """abs absolute cos cosh divide exp exp2 expm1 log log1p log2 mean pi power prod reciprocal sin sinh sqrt square
    std tanh var vdot""".split()
)


@dataclass
class Uses:
    """By the input's number: what is an index or converted, the ranges of what sets integers apart, from the least of
    which all is on one side to that of which all is on the other, those in which it is an order, the
    numbers that some are equal to, as a label that is ignored, and those that what is made of it is compared
    with, and those by which it is multiplied or divided; of which what is made of them alone is kept above
    zero; the names of NumPy that were asked for, of those in `NOT_FINITE` whether of others than
    the reference itself made infinite; whether inputs are drawn finite; and how many elements came about on the way."""

    indices: set[int] = field(default_factory=set)
    compared: dict[int, tuple[float, float]] = field(default_factory=dict)
    lengths: set[int] = field(default_factory=set)
    marks: dict[int, set[float]] = field(default_factory=dict)
    thresholds: dict[int, set[float]] = field(default_factory=dict)
    factors: dict[int, set[float]] = field(default_factory=dict)
    kept_above: set[int] = field(default_factory=set)
    asked: set[str] = field(default_factory=set)
    asked_of: dict[str, bool] = field(default_factory=dict)
    finite: bool = True
    made: int = 0

    @property
    def not_finite(self) -> bool:
        """True where the reference has something to say of NaN or infinities that it may be given."""
        return any(self.asked_of.get(name, True) for name in self.asked & NOT_FINITE)

    @property
    def rounds(self) -> bool:
        """True where numbers are rounded to others of fewer bits."""
        return bool(self.asked & ROUNDS)

    @property
    def steps(self) -> bool:
        """True where what lies between two numbers of fewer bits becomes either."""
        return self.rounds or NARROWED in self.asked

    @property
    def narrow_on_the_way(self) -> bool:
        """True where it goes on with numbers that it has rounded to a narrower format."""
        return NARROW_ON in self.asked

    @property
    def decides(self) -> bool:
        """True where single numbers decide what comes of others: who rounds them otherwise is wrong."""
        found = self.thresholds or self.compared or self.marks or self.asked & COMPARED
        return self.rounds or self.picks or bool(found)

    @property
    def smooth(self) -> bool:
        """True where numbers are neither compared nor put in order, nor anything unknown is made of them."""
        return not self.indices and self.asked <= SMOOTH

    @property
    def adds(self) -> bool:
        """True where numbers are only added and multiplied."""
        return not self.indices and self.asked <= SMOOTH - BENT - {NARROW_ON}

    @property
    def picks(self) -> bool:
        """True where what is largest decides which element of something else counts."""
        return any(name.startswith("arg") or name == "lexsort" for name in self.asked)


class Watched(NDArrayOperatorsMixin):
    """An array that stems from the inputs numbered `sources`; `filled` where the reference itself put NaN or
    infinities in, as what a maximum begins with."""

    __array_priority__ = 90.0

    def __init__(
        self, value: np.ndarray, sources: frozenset[int], uses: Uses, filled: bool = False
    ) -> None:
        self.value, self.sources, self.uses, self.filled = value, sources, uses, filled

    def _plain(self) -> np.ndarray:
        self.uses.indices |= self.sources
        return self.value

    def _key(self) -> np.ndarray:
        """The array as an index; a condition is none."""
        return self.value if self.value.dtype == bool else self._plain()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """A conversion, behind which anything may happen."""
        return np.asarray(self._plain(), dtype=dtype)

    def __index__(self) -> int:
        return int(self._plain().item())

    __int__ = __index__

    def __float__(self) -> float:
        return float(self._plain().item())

    def __len__(self) -> int:
        return len(self.value)

    def __bool__(self) -> bool:
        return bool(self.value)

    def __getitem__(self, key: Any) -> Any:
        return self._like(self.value[_watched(key, index=True)])

    def __setitem__(self, key: Any, new: Any) -> None:
        self.value[_watched(key, index=True)] = _watched(new)
        if isinstance(new, Watched):
            self.sources |= new.sources
        self.filled |= _is_filled([new])

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        found = getattr(self.value, name)
        self.uses.asked.add(name)
        if not callable(found):
            return self._like(found)
        if name == "astype":
            return self._astype
        index = name in INDEXED
        return lambda *args, **kwargs: self._like(
            found(*_watched(args, index=index), **_watched(kwargs, index=index))
        )

    def _astype(self, dtype: Any, *_: Any, **__: Any) -> Any:
        wanted = np.dtype(dtype)
        if self.value.dtype.kind == "f" and (wanted.kind in "iu" or wanted.itemsize < 2):
            self.uses.asked.add("astype to fewer bits")
        elif self.value.dtype.kind == "f" and is_float(wanted) and wanted.itemsize == 2:
            self.uses.asked.add(NARROWED)
        return self._of(np.ndarray.astype, (self, wanted), {})

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if ufunc in COMPARISONS:
            self.uses.asked.add(ufunc.__name__)
            if inputs[0] is inputs[1]:  # which NaN is not
                self.uses.asked.add("isnan")
            self._compare(ufunc, inputs)
        self._ask_of(ufunc.__name__, inputs)
        numbers = [one for one in inputs if not isinstance(one, Watched)]
        if ufunc is np.maximum and len(self.sources) == 1 and numbers and np.min(numbers[0]) > 0:
            self.uses.kept_above |= self.sources
        if numbers and ufunc in SCALES:
            for source, other in itertools.product(self.sources, numbers):
                if not np.ndim(other):
                    self.uses.factors.setdefault(source, set()).add(float(other))
        return self._of(getattr(ufunc, method), inputs, kwargs)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        self.uses.asked.add(func.__name__)
        self._ask_of(func.__name__, args)
        if (place := INDEXED.get(func.__name__)) is not None:
            args = [_watched(one, index=True) if n == place else one for n, one in enumerate(args)]
            kwargs = _watched(kwargs, index=True)
        return self._of(func, args, kwargs)

    def _ask_of(self, name: str, args: Any) -> None:
        """Writes down whether a question about NaN and infinities is one about what the inputs may hold."""
        if name in NOT_FINITE:
            own = (one.value for one in args if isinstance(one, Watched) and not one.filled)
            given = not self.uses.finite or any(np.isfinite(one).all() for one in own)
            self.uses.asked_of[name] = self.uses.asked_of.get(name, False) or given

    def _compare(self, ufunc: np.ufunc, inputs: Any) -> None:
        mark = ufunc in (np.equal, np.not_equal)
        # Of `places < length` and its negation all are below the length that is one more than the last place.
        more = (
            ufunc in (np.less, np.greater_equal)
            if isinstance(inputs[1], Watched)
            else ufunc in (np.greater, np.less_equal)
        )
        for other in inputs:
            if isinstance(other, Watched):
                continue
            for source in self.sources:
                if np.ndim(other):
                    low, high = self.uses.compared.get(source, (np.inf, -np.inf))
                    most = float(np.max(other)) + more
                    self.uses.compared[source] = min(low, float(np.min(other))), max(high, most)
                    self.uses.lengths |= set() if mark else {source}
                    continue
                self.uses.thresholds.setdefault(source, set()).add(float(other))
                if mark:
                    self.uses.marks.setdefault(source, set()).add(float(other))

    def _of(self, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        own = [one for one in args if isinstance(one, Watched)]
        if any(one.value.dtype.itemsize <= 2 and is_float(one.value.dtype) for one in own):
            self.uses.asked.add(NARROW_ON)
        sources = frozenset[int]().union(*(one.sources for one in own))
        found = function(*_watched(args), **_watched(kwargs))
        return self._like(found, sources or self.sources, _is_filled(args))

    def _like(
        self, found: Any, sources: frozenset[int] | None = None, filled: bool | None = None
    ) -> Any:
        if isinstance(found, (np.ndarray, np.generic)):
            self.uses.made += found.size
            filled = self.filled if filled is None else filled
            return Watched(np.asarray(found), sources or self.sources, self.uses, filled)
        return found


def _is_filled(given: Any) -> bool:
    """Whether among these are numbers of the reference that are not finite, or what has such in it."""
    return any(
        one.filled if isinstance(one, Watched) else isinstance(one, float) and not np.isfinite(one)
        for one in given
    )


def _watched(given: Any, *, index: bool = False) -> Any:
    """Plain arrays in place of those that are watched."""
    if isinstance(given, Watched):
        return given._key() if index else given.value
    if type(given) in (tuple, list):
        return type(given)(_watched(one, index=index) for one in given)
    if type(given) is dict:
        return {name: _watched(one, index=index) for name, one in given.items()}
    return given


class AskedNumpy(ModuleType):
    """NumPy that writes down the names that are asked of it."""

    def __init__(self, uses: Uses) -> None:
        super().__init__("numpy")
        self._uses = uses

    def __getattr__(self, name: str) -> Any:
        self._uses.asked.add(name)
        if name in ("asarray", "array", "ascontiguousarray", "asanyarray"):
            return self._array
        found = getattr(np, name)
        if name in ("zeros", "empty", "ones", "full"):
            return lambda *args, **kwargs: Watched(
                found(*_watched(args), **_watched(kwargs)),
                frozenset(),
                self._uses,
                _is_filled((*args, *kwargs.values())),
            )
        return found

    def _array(self, given: Any, dtype: Any = None, **more: Any) -> Any:
        if isinstance(given, Watched):
            return given if dtype is None else given.astype(dtype)
        return np.array(given, dtype=dtype, **more)


class WideIntegers(ModuleType):
    """NumPy of which every integer format has 64 bits."""

    def __getattr__(self, name: str) -> Any:
        found = getattr(np, name)
        narrow = isinstance(found, type) and issubclass(found, np.integer)
        return np.int64 if narrow else found
