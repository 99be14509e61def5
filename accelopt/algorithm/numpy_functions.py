"""What NumPy's functions are of traced arrays: each one that has a definition, the others refused."""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Callable, Sequence
from types import FunctionType, ModuleType
from typing import Any, cast

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from accelopt.algorithm.elementwise_functions import elementwise, select
from accelopt.algorithm.index import Axis, Index, index_of
from accelopt.algorithm.ir import Constant
from accelopt.algorithm.lookups import ComputedElements, bound
from accelopt.algorithm.normal_forms import apply
from accelopt.algorithm.reductions import fold
from accelopt.algorithm.traced_array import (
    HANDLERS,
    MASKED,
    METHODS,
    NotTraced,
    Trace,
    TracedArray,
    axes_of_shape,
    identity,
    index_value,
    is_float,
)
from accelopt.algorithm.value_nodes import (
    PLACES,
    UNDEFINED,
    Application,
    Choice,
    Fold,
    ScanElement,
    Value,
)
from accelopt.algorithm.values import Values, fresh_axis

MATHEMATICAL = set("erf exp log sqrt tanh sin cos fabs floor ceil".split())
"""Functions of `math`, for np.vectorize."""


def _ufunc(trace: Trace, ufunc: np.ufunc, method: str, given: Sequence[Any], more: Any) -> Any:
    """`__array_ufunc__`."""
    name, out, dtype = ufunc.__name__, more.pop("out", None), more.pop("dtype", None)
    more.pop("casting", None)
    if method == "reduce":
        made = _reduced(trace, name, given[0], **more)
    elif method == "accumulate":
        made = _accumulated(trace.traced(given[0]), name, more.get("axis", 0))
    elif method == "outer":
        left, right = map(trace.traced, given)
        made = elementwise(trace, name, [left[(..., *(None,) * right.ndim)], right])
    elif method == "at" and name in ("add", "subtract"):
        value = trace.traced(given[2])
        given[0].add_at(given[1], value if name == "add" else np.negative(value))
        return None
    elif method == "at" and name in COMBINERS:
        given[0].add_at(given[1], trace.traced(given[2]), COMBINERS[name])
        return None
    elif method != "__call__":
        trace.refuse(f"np.{name}.{method} with these arguments has no definition as an Algorithm")
    elif name in ("matmul", "vecdot"):
        made = matmul(trace, *given)
    elif name == "divmod":
        return tuple(elementwise(trace, n, given) for n in ("floor_divide", "remainder"))
    else:
        made = elementwise(trace, name, given, dtype)
    target = out[0] if isinstance(out, tuple) else out
    if (mask := more.pop("where", True)) is not True and method == "__call__":
        if target is None:
            trace.refuse(f"np.{name} with where, without out, leaves elements undefined")
        made = where_(trace, mask, made, target)
    if target is None:
        return made
    if not isinstance(target, TracedArray):
        trace.refuse("a computed array cannot be put into one of numbers; make that with np.empty "
                     "inside of forward")  # fmt: skip
    trace.write(target, made)
    return target


# Reductions.

COMBINERS = {
    "add": "add", "multiply": "multiply", "maximum": "maximum", "minimum": "minimum",
    "fmax": "maximum", "fmin": "minimum", "logical_and": "minimum", "logical_or": "maximum",
}  # fmt: skip


def _places(array: TracedArray, axis: Any) -> tuple[int, ...]:
    given = (
        range(array.ndim) if axis is None else axis if isinstance(axis, (tuple, list)) else [axis]
    )
    return tuple(sorted(int(n) % max(array.ndim, 1) for n in given)) if array.ndim else ()


def _folded(array: TracedArray, combiner: str, axis: Any, keepdims: Any) -> tuple[Any, Value]:
    """The shape and the value of an array combined along axes."""
    values, body = array.trace.values, array.value
    places = _places(array, axis)
    reduced: list[Axis] = []
    own = axes_of_shape(array.shape)
    for n in places:
        bound = fresh_axis(own[n].extent, {*values.axes(body), *reduced})
        body = values.substitute(body, {own[n]: index_of(bound)})
        reduced.append(bound)
    found = fold(values, combiner, reduced, body)
    keep = keepdims is True
    shape = tuple(1 if n in places else e for n, e in enumerate(array.shape)
                  if keep or n not in places)  # fmt: skip
    if not keep:
        left = [own[n] for n in range(array.ndim) if n not in places]
        new = identity(shape)
        found = values.substitute(found, dict(zip(left, new, strict=True)))
    return shape, found


def _reduced(
    trace: Trace, name: str, given: Any, axis: Any = 0, keepdims: Any = False, initial: Any = None,
    where: Any = True, dtype: Any = None, out: Any = None,
) -> TracedArray:  # fmt: skip
    array = trace.traced(given)
    if name == "logaddexp":
        top = _reduced(trace, "maximum", array, axis, True)
        total: Any = np.log(_reduced(trace, "add", np.exp(array - top), axis, True)) + top
        return _put(total if keepdims else _sum(total, axis), out)
    if name not in COMBINERS:
        trace.refuse(f"np.{name}.reduce has no definition as an Algorithm")
    combiner = COMBINERS[name]
    if where is not True:
        neutral = {"add": 0.0, "multiply": 1.0, "maximum": -math.inf, "minimum": math.inf}[combiner]
        array = where_(trace, where, array, neutral)
    truth = name.startswith("logical")
    if truth and array.dtype.kind != "b":
        array = elementwise(trace, "not_equal", [array, 0])
    shape, value = _folded(array, combiner, axis, keepdims)
    kind = array.dtype
    if combiner in ("add", "multiply") and kind.kind in "bui" and kind.itemsize < 8:
        kind = np.dtype(np.int64)
    made = trace.array(shape, kind if dtype is None else dtype, value)
    if isinstance(initial, (int, float)) and not isinstance(initial, bool):
        made = elementwise(trace, name, [made, initial])
    if out is not None:
        trace.write(out, made)
        return cast(TracedArray, out)
    return made


def _sum(array: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = False,
         **more: Any) -> TracedArray:  # fmt: skip
    return _reduced(array.trace, "add", array, axis, keepdims, dtype=dtype, out=out, **more)


def _reducer(name: str) -> Callable[..., TracedArray]:
    def reduced(array: Any, axis: Any = None, out: Any = None, keepdims: Any = False,
                **more: Any) -> TracedArray:  # fmt: skip
        more.pop("dtype", None)
        return _reduced(array.trace, name, array, axis, keepdims, out=out, **more)

    return reduced


def _count(array: TracedArray, axis: Any) -> int:
    return math.prod(array.shape[n] for n in _places(array, axis))


def _mean(array: TracedArray, axis: Any = None, dtype: Any = None, out: Any = None,
          keepdims: Any = False, where: Any = True) -> TracedArray:  # fmt: skip
    kind = dtype or (array.dtype if is_float(array.dtype) else np.float64)
    total = _sum(array, axis, kind, None, keepdims, where=where)
    count: Any = _count(array, axis)
    if where is not True:
        count = _sum(array.trace.traced(where).broadcast(array.shape), axis, None, None, keepdims)
    return _put(total / count, out, kind)


def _put(made: TracedArray, out: Any, dtype: Any = None) -> TracedArray:
    if dtype is not None:
        made = made.trace.array(made.shape, dtype, made.value)
    if out is None:
        return made
    made.trace.write(out, made)
    return cast(TracedArray, out)


def _var(array: TracedArray, axis: Any = None, dtype: Any = None, out: Any = None, ddof: Any = 0,
         keepdims: Any = False, correction: Any = None) -> TracedArray:  # fmt: skip
    squares = cast(TracedArray, np.square(array - _mean(array, axis, keepdims=True)))
    total = _sum(squares, axis, None, None, keepdims)
    left = _count(array, axis) - (ddof if correction is None else correction)
    return _put(total / left, out, dtype or total.dtype)


def _arg(name: str) -> Callable[..., TracedArray]:
    """np.argmax and np.argmin: the first place that has the extremum."""

    def found(
        array: TracedArray, axis: Any = None, out: Any = None, keepdims: Any = False
    ) -> TracedArray:
        trace = array.trace
        if axis is None:
            array, axis = array.reshape(-1), 0
        length = array.shape[axis]
        top = _reduced(trace, name, array, axis, True)
        places = _moveaxis(trace.traced(np.arange(length)).broadcast(
            (*(1 for _ in array.shape[1:]), length)), -1, axis)  # fmt: skip
        first = where_(trace, array == top, places, length)
        return _put(_reduced(trace, "minimum", first, axis, keepdims), out, np.int64)

    return found


def _norm(array: TracedArray, ord: Any = None, axis: Any = None, keepdims: Any = False) -> Any:
    vectors = len(_places(array, axis)) == 1
    if ord in (None, "fro") or (ord == 2 and vectors):
        return np.sqrt(_sum(array * array, axis, keepdims=keepdims))
    if vectors and ord in (math.inf, -math.inf):
        return _reduced(
            array.trace, "maximum" if ord > 0 else "minimum", np.abs(array), axis, keepdims
        )
    if vectors and isinstance(ord, (int, float)) and ord:
        total = np.sum(np.power(np.abs(array), ord), axis, keepdims=keepdims)
        return total if ord == 1 else np.power(total, 1 / ord)
    return array.trace.refuse("this np.linalg.norm has no definition as an Algorithm")


def _accumulated(array: TracedArray, name: str, axis: Any = None, dtype: Any = None,
                 out: Any = None) -> TracedArray:  # fmt: skip
    """np.cumsum and the like: a recurrence along an axis."""
    trace = array.trace
    if axis is None:
        array, axis = array.reshape(-1), 0
    values, body = trace.values, array.value
    own = axes_of_shape(array.shape)[axis % array.ndim]
    if own.extent == 1:
        return array.copy()
    along = fresh_axis(own.extent, values.axes(body))
    term = values.substitute(body, {own: index_of(along)})
    one, zero = values.number(1), values.number(0)
    forms = {
        "add": (one, "add", term, zero), "multiply": (term, "add", zero, one),
        "maximum": (one, "maximum", term, values.number(-3.4e38)),
        "minimum": (one, "minimum", term, values.number(3.4e38)),
    }  # fmt: skip
    if name not in forms:
        trace.refuse(f"np.{name}.accumulate has no definition as an Algorithm")
    factor, combine, term, initial = forms[name]
    made = ScanElement("multiply", factor, combine, term, initial, along, index_of(own))
    kind = dtype or (np.int64 if array.dtype.kind in "bui" else array.dtype)
    return _put(trace.array(array.shape, kind, values.same(made)), out)


# Products.


def matmul(trace: Trace, left: Any, right: Any, **_: Any) -> TracedArray:
    """np.matmul."""
    a, b = trace.traced(left), trace.traced(right)
    if a.ndim == 1 and b.ndim == 1:
        return _sum(a * b)
    if a.ndim == 1:
        return matmul(trace, a[None], b)[..., 0, :]
    if b.ndim == 1:
        return matmul(trace, a, b[:, None])[..., 0]
    if a.shape[-1] != b.shape[-2]:
        raise ValueError(f"matmul: {a.shape} and {b.shape} do not go together")
    product = a[..., :, :, None] * b[..., None, :, :]
    return _sum(product, -2, product.dtype)


def _dot(a: TracedArray, right: Any, out: Any = None) -> TracedArray:
    trace, b = a.trace, a.trace.traced(right)
    if not a.ndim or not b.ndim:
        return _put(a * b, out)
    if b.ndim <= 2:
        return _put(matmul(trace, a, b), out)
    return _put(_tensordot(a, b, ([a.ndim - 1], [b.ndim - 2])), out)


def _tensordot(a: TracedArray, right: Any, axes: Any = 2) -> TracedArray:
    b = a.trace.traced(right)
    if isinstance(axes, int):
        axes = (range(a.ndim - axes, a.ndim), range(axes))
    first, second = ([n] if isinstance(n, int) else list(n) for n in axes)
    first, second = [n % a.ndim for n in first], [n % b.ndim for n in second]
    letters = [chr(97 + n) for n in range(a.ndim + b.ndim)]
    own, other = letters[: a.ndim], letters[a.ndim :]
    for x, y in zip(first, second, strict=True):
        other[y] = own[x]
    kept = [c for n, c in enumerate(own) if n not in first]
    kept += [c for n, c in enumerate(other) if n not in second]
    return _einsum(a.trace, f"{''.join(own)},{''.join(other)}->{''.join(kept)}", a, b)


def _einsum(trace: Trace, text: Any, *given: Any, out: Any = None, **_: Any) -> TracedArray:
    if not isinstance(text, str):  # arrays before their axes' numbers
        pairs, last = [text, *given], len(given) % 2
        names = [
            "".join(chr(97 + n) for n in p) for p in [*pairs[1::2], *(pairs[-1:] * (1 - last))]
        ]
        text = ",".join(names[: len(pairs) // 2]) + (f"->{names[-1]}" if not last else "")
        given = tuple(pairs[0 : len(pairs) // 2 * 2 : 2])
    arrays = [trace.traced(g) for g in given]
    left, arrow, right = text.replace(" ", "").partition("->")
    terms = left.split(",")
    lead = max((a.ndim - len(t.replace("...", "")) for t, a in zip(terms, arrays, strict=True)
                if "..." in t), default=0)  # fmt: skip
    spare = [chr(n) for n in range(0x3B1, 0x3B1 + lead)]
    for n, (term, array) in enumerate(zip(terms, arrays, strict=True)):
        own = array.ndim - len(term.replace("...", ""))
        terms[n] = term.replace("...", "".join(spare[lead - own :]) if own else "")
    right = right.replace("...", "".join(spare))
    if not arrow:
        every = "".join(terms)
        right = "".join(spare) + "".join(
            sorted(c for c in set(every) - set(spare) if every.count(c) == 1)
        )
    extents: dict[str, int] = {}
    for term, array in zip(terms, arrays, strict=True):
        for letter, extent in zip(term, array.shape, strict=True):
            extents[letter] = max(extents.get(letter, 1), extent)
    order = right + "".join(c for c in extents if c not in right)
    shape = [extents[c] for c in order]
    axes = dict(zip(order, identity(shape), strict=True))
    parts = []
    for term, array in zip(terms, arrays, strict=True):
        moved = dict(zip(axes_of_shape(array.shape), (axes[c] for c in term), strict=True))
        parts.append((trace.values.substitute(array.value, moved), 1.0))
    kind = np.result_type(*(a.dtype for a in arrays))
    whole = trace.array(shape, kind, trace.values.product(parts))
    summed = tuple(range(len(right), len(order)))
    return _put(_sum(whole, summed, kind) if summed else whole, out)


# Shapes and places.


def _reshaped(function: Callable[..., np.ndarray]) -> Callable[..., Any]:
    """A function of NumPy's that adds or removes dimensions of one element, of one array or of each of several."""

    def made(array: TracedArray, *args: Any, **kwargs: Any) -> Any:
        if any(map(_holds_traced, args)):
            return tuple(made(array.trace.traced(one)) for one in (array, *args))
        return array.reshape(function(np.broadcast_to(0, array.shape), *args, **kwargs).shape)

    return made


def _moveaxis(array: TracedArray, source: Any, destination: Any) -> TracedArray:
    order = np.moveaxis(np.empty(range(array.ndim)), source, destination).shape
    return array.transpose(order)


def _repeated(array: TracedArray, repeats: Any, axis: Any = None) -> TracedArray:
    if np.ndim(repeats):
        array.trace.refuse("np.repeat by an array has no definition as an Algorithm")
    if axis is None:
        array, axis = array.reshape(-1), 0
    axis, times = axis % array.ndim, int(repeats)
    shape = (*array.shape[:axis], array.shape[axis] * times, *array.shape[axis + 1 :])
    own = axes_of_shape(array.shape)
    new = list(identity(shape))
    new[axis] = new[axis] // times
    return array.view_as(shape, dict(zip(own, new, strict=True))).copy()


def _padded(
    array: TracedArray, width: Any, mode: Any = "constant", constant_values: Any = 0
) -> TracedArray:
    trace = array.trace
    if isinstance(width, dict):
        width = [width.get(n, width.get(n - array.ndim, (0, 0))) for n in range(array.ndim)]
    ends = np.broadcast_to(np.asarray(width), (array.ndim, 2)).tolist()
    shape = tuple(e + a + b for e, (a, b) in zip(array.shape, ends, strict=True))
    places = tuple(slice(a, a + e) for e, (a, _) in zip(array.shape, ends, strict=True))
    if mode == "constant" and not np.ndim(constant_values):
        made = trace.array(shape, array.dtype, trace.number(constant_values))
        made[places] = array
        return made
    if mode not in ("edge", "wrap", "reflect", "symmetric"):
        trace.refuse(f"np.pad with mode {mode} has no definition as an Algorithm")
    for axis, (before, after) in enumerate(ends):
        n = array.shape[axis]
        key = (slice(None),) * axis
        edges: list[TracedArray] = []
        for k in (*range(-before, 0), *range(n, n + after)):
            again = mode == "symmetric"  # the element at the edge
            mirrored = k if 0 <= k < n else -k - again if k < 0 else 2 * (n - 1) - k + again
            at = {"edge": min(max(k, 0), n - 1), "wrap": k % n}.get(mode, mirrored)
            edges.append(array[(*key, slice(at, at + 1))])
        array = trace.joined([*edges[:before], array, *edges[before:]], axis)
    return array


def _windows(array: TracedArray, window_shape: Any, axis: Any = None, **_: Any) -> TracedArray:
    sizes = [window_shape] if isinstance(window_shape, int) else list(window_shape)
    places = (
        _places(array, axis)
        if axis is None or isinstance(axis, (tuple, list))
        else (axis % array.ndim,)
    )
    shape = list(array.shape)
    for n, size in zip(places, sizes, strict=True):
        shape[n] -= size - 1
    axes = identity([*shape, *sizes])
    old = {own: axes[n] for n, own in enumerate(axes_of_shape(array.shape))}
    for k, n in enumerate(places):
        own = axes_of_shape(array.shape)[n]
        old[own] = old[own] + axes[array.ndim + k]
    return array.view_as([*shape, *sizes], old)


def _take(array: TracedArray, indices: Any, axis: Any = None) -> TracedArray:
    if axis is None:
        array, axis = array.reshape(-1), 0
    place = indices if isinstance(indices, int) else array.trace.traced(indices)
    return array[(*(slice(None),) * (axis % array.ndim), place)]


def _gathered(array: TracedArray, shape: Sequence[int], places: dict[int, Index],
              chosen: Sequence[tuple[int, Value]]) -> TracedArray:  # fmt: skip
    """Elements that numbers of an input choose: looked up, or the sum of all, each where it is the chosen one,
    where that reads no more than there is and the trace does not look up."""
    trace, values = array.trace, array.trace.values
    if len(chosen) == 1 and isinstance(chosen[0][1], Choice):
        piecewise = _by_cases(array, places, *chosen[0])
        if piecewise is not None:
            return trace.array(shape, array.dtype, piecewise)
    own = axes_of_shape(array.shape)
    if len(chosen) == 1:
        ranked = _at_its_place(array, places, *chosen[0])
        if ranked is not None:
            return trace.array(shape, array.dtype, ranked)
    all_read = math.prod(shape) * math.prod(array.shape[n] for n, _ in chosen) <= array.size
    if trace.looks_up or not all_read:
        used = {
            a.name for _, value in chosen for a in values.axes(value) | values.axes(array.value)
        }
        fresh = (name for n in itertools.count() if (name := f"?at{n}") not in used)
        numbers = {Axis(next(fresh), array.shape[n]): value for n, value in chosen}
        old = {own[n]: i for n, i in places.items()}
        old |= {own[n]: index_of(axis) for (n, _), axis in zip(chosen, numbers, strict=True)}
        with contextlib.suppress(ComputedElements):
            found = bound(values, values.substitute(array.value, old), numbers)
            return trace.array(shape, array.dtype, found)
    if not all_read:
        trace.refuse("elements of what is computed, chosen by numbers of an input, have no definition "
                     "as an Algorithm")  # fmt: skip
    body = array.value
    taken = {*values.axes(body), *(a for i in places.values() for a in i.axes)}
    taken |= {a for _, value in chosen for a in values.axes(value)}
    old = {own[n]: i for n, i in places.items()}
    reduced: list[Axis] = []
    holds: list[tuple[Value, float]] = []
    for n, value in chosen:
        axis = fresh_axis(own[n].extent, {*taken, *reduced})
        reduced.append(axis)
        old[own[n]] = index_of(axis)
        same = Application("equal", (value, values.position(index_of(axis))))
        holds.append((values.same(same), 1.0))
    body = values.substitute(body, old)
    return trace.array(shape, array.dtype, fold(values, "add", reduced, values.product([*holds, (body, 1.0)])))  # fmt: skip


def _at_its_place(
    array: TracedArray, places: dict[int, Index], n: int, number: Value
) -> Value | None:
    """The elements where each row's largest, second largest and so on is, which need not be looked up."""
    values = array.trace.values
    if not isinstance(number, Fold) or number.combiner not in PLACES or len(number.axes) != 1:
        return None
    own, combiner = axes_of_shape(array.shape), f"largest_{PLACES[number.combiner]}"
    old = {own[k]: i for k, i in places.items()} | {own[n]: index_of(number.axes[0])}
    for sign in (1.0, -1.0):
        body = values.product([(values.substitute(array.value, old), 1.0)], sign)
        if body == number.body:
            combiner = "maximum" if combiner == "largest_1" else combiner
            return values.product([(fold(values, combiner, number.axes, body), 1.0)], sign)
    return None


def _by_cases(array: TracedArray, places: dict[int, Index], n: int, chosen: Value) -> Value | None:
    """The elements where the index along dimension `n` is one of several functions of the place."""
    if isinstance(chosen, Choice):
        parts = [_by_cases(array, places, n, part) for part in (chosen.on_true, chosen.on_false)]
        if parts[0] is None or parts[1] is None:
            return None
        return array.trace.values.where(chosen.conditions, parts[0], parts[1])
    index = index_value(chosen)
    if index is None or (
        not index.terms and not -array.shape[n] <= index.constant < array.shape[n]
    ):
        return None
    if not index.terms:
        index = Index(index.constant % array.shape[n])
    own = axes_of_shape(array.shape)
    return array.trace.values.substitute(
        array.value, {own[k]: i for k, i in {**places, n: index}.items()}
    )


def where_(trace: Trace, mask: Any, on_true: Any, on_false: Any) -> TracedArray:
    """np.where."""
    arrays = [trace.traced(operand) for operand in (mask, on_true, on_false)]
    shape = np.broadcast_shapes(*(a.shape for a in arrays))
    chosen, *branches = (a.broadcast(shape).value for a in arrays)
    plain = [np.ones(1, g.dtype) if isinstance(g, TracedArray) else g if np.isscalar(g)
             else np.asarray(g) for g in (on_true, on_false)]  # fmt: skip
    return trace.array(shape, np.result_type(*plain), select(trace, chosen, *branches))


def _triangle(array: TracedArray, k: int, sign: int) -> TracedArray:
    trace = array.trace
    row, column = identity(array.shape)[-2:]
    kept = trace.values.where([(row - column + k) * sign], array.value, trace.values.number(0))
    return trace.array(array.shape, array.dtype, kept)


def _clip(array: TracedArray, low: Any = None, high: Any = None, out: Any = None,
          min: Any = None, max: Any = None, **_: Any) -> TracedArray:  # fmt: skip
    low, high = (min if low is None else low), (max if high is None else high)
    for name, limit in (("maximum", low), ("minimum", high)):
        if limit is not None:
            array = elementwise(array.trace, name, [array, limit])
    return _put(array, out)


def _joined(trace: Trace, arrays: Any, axis: Any = 0) -> TracedArray:
    parts = [trace.traced(a) for a in arrays]
    if axis is None:
        parts, axis = [p.reshape(-1) for p in parts], 0
    return trace.joined(parts, axis)


def _diagonal(array: TracedArray, offset: int = 0, axis1: int = 0, axis2: int = 1) -> TracedArray:
    array = _moveaxis(array, (axis1, axis2), (-2, -1))
    firsts = max(-offset, 0), max(offset, 0)
    length = min(e - first for e, first in zip(array.shape[-2:], firsts, strict=True))
    shape = (*array.shape[:-2], length)
    *lead, at = identity(shape)
    places = [*lead, *(at + first for first in firsts)]
    return array.view_as(shape, dict(zip(axes_of_shape(array.shape), places, strict=True)))


def _on_diagonal(array: TracedArray, offset: int = 0) -> TracedArray:
    """np.diag: of a vector the matrix that has it on a diagonal."""
    if array.ndim == 2:
        return _diagonal(array, offset)
    trace, size = array.trace, array.size + abs(offset)
    row, column = identity((size, size))
    element = trace.values.substitute(
        array.value, {axis: row + min(offset, 0) for axis in axes_of_shape(array.shape)}
    )
    here = column - row - offset
    kept = trace.values.where([here, here * -1], element, trace.values.number(0))
    return trace.array((size, size), array.dtype, kept)


def _filled_diagonal(array: TracedArray, number: Any, wrap: bool = False) -> None:
    row, column = identity(array.shape)
    trace = array.trace
    made = trace.values.where([row - column, column - row], trace.traced(number).value, array.value)
    trace.write(array, trace.array(array.shape, array.dtype, made))


def _rounded(array: TracedArray, decimals: int = 0, out: Any = None) -> TracedArray:
    made: Any = array
    if is_float(array.dtype):
        made = np.rint(array * 10.0**decimals) / 10.0**decimals if decimals else np.rint(array)
    return _put(made, out, array.dtype)


MOST_ORDERED = 512
"""Elements from either end of a sorted row that are known."""


def _ordered(
    array: TracedArray, axis: int | None, combiner: str, stable: bool = False
) -> TracedArray:
    """The elements of each row from the least to the largest (`largest`), or where they are (`place`). Elements far
    from both ends are undefined; of equal ones the first is first, but the last in the upper half of what need not
    be `stable`."""
    if axis is None:
        array, axis = array.reshape(-1), 0
    trace, values = array.trace, array.trace.values
    own = axes_of_shape(array.shape)[axis % array.ndim]
    if own.extent == 1:
        return array.copy() if combiner == "largest" else created(trace, array.shape, 0, np.int64)
    along = fresh_axis(own.extent, values.axes(array.value))
    body = values.substitute(array.value, {own: index_of(along)})
    turned, sign = values.product([(body, 1.0)], -1.0), -1.0 if combiner == "largest" else 1.0

    def ranked(rank: int, of: Value) -> Value:
        if combiner == "place" and rank > 1 and not trace.ranked_places:
            return _place_by_comparison(values, rank, along, of)
        return fold(
            values,
            f"{combiner}_{rank}" if (combiner, rank) != ("largest", 1) else "maximum",
            [along],
            of,
        )

    def element(at: int) -> Value:
        low, high = at + 1, own.extent - at
        if min(low, high) > MOST_ORDERED:
            return UNDEFINED
        if high <= low and not (stable and low <= MOST_ORDERED):
            return ranked(high, body)
        return values.product([(ranked(low, turned), 1.0)], sign)

    def between(first: int, last: int) -> Value:
        if last - first == 1 or MOST_ORDERED <= first < last <= own.extent - MOST_ORDERED:
            return element(first)
        middle = (first + last) // 2
        return values.where([index_of(own) - middle], between(middle, last), between(first, middle))

    kind = array.dtype if combiner == "largest" else np.int64
    return trace.array(array.shape, kind, between(0, own.extent))


def _place_by_comparison(values: Values, rank: int, along: Axis, body: Value) -> Value:
    """Where the `rank`-th largest element is: the first place after the one before where an element is as large."""
    least, before = fold(values, "maximum", [along], body), fold(values, "place_1", [along], body)
    place, none = values.position(index_of(along)), values.number(along.extent)
    for n in range(2, rank + 1):
        largest = fold(values, f"largest_{n}", [along], body)
        again = values.same(Application("equal", (least, largest)))
        after = apply(values, "select", [again, before, values.number(-1)])
        later = values.same(Application("greater", (place, after)))
        alike = values.same(Application("equal", (body, largest)))
        chosen = apply(values, "select", [later, place, none])
        chosen = apply(values, "select", [alike, chosen, none])
        least, before = largest, fold(values, "minimum", [along], chosen)
    return before


def _sorter(combiner: str, by_rank: bool = False) -> Callable[..., TracedArray]:
    """np.sort, np.argsort, and their partitions, which are whole orders here."""

    def made(array: TracedArray, *more: Any, axis: Any = -1, kind: Any = None,
             stable: Any = None) -> TracedArray:  # fmt: skip
        rest = more[1:] if by_rank else more
        kept = bool(stable) or kind in ("stable", "mergesort")
        return _ordered(array, rest[0] if rest else axis, combiner, kept)

    return made


def _convolved(array: TracedArray, right: Any, mode: str = "full", turned: bool = True) -> Any:
    taps = array.trace.traced(right)
    if taps.size > array.size and turned:
        array, taps = taps, array
    count = taps.size
    before = {"full": count - 1, "same": count // 2, "valid": 0}[mode]
    after = {"full": count - 1, "same": count - 1 - before, "valid": 0}[mode]
    windows = _windows(_padded(array, (before, after)), count)
    return _sum(windows * (taps[::-1] if turned else taps), -1)


def _found_places(trace: Trace, edges: Any, given: Any, side: str = "left") -> TracedArray:
    """np.searchsorted: how many numbers of a sorted row lie below."""
    edges, array = trace.traced(edges), trace.traced(given)
    below = elementwise(
        trace, "less" if side == "left" else "less_equal", [edges, array[..., None]]
    )
    return _sum(below, -1, np.int64)


def _counted(array: TracedArray, weights: Any = None, minlength: int = 0) -> TracedArray:
    """np.bincount of numbers below `minlength`."""
    if not minlength:
        array.trace.refuse("np.bincount without minlength has no length that is known beforehand")
    same = elementwise(array.trace, "equal", [np.arange(minlength)[:, None], array])
    return _sum(same if weights is None else same * weights, -1)


def _softmax(array: TracedArray, axis: Any = None) -> Any:
    exponentials = np.exp(array - _reduced(array.trace, "maximum", array, axis, True))
    return exponentials / _sum(exponentials, axis, keepdims=True)


def _log_sum(array: TracedArray, axis: Any = None, keepdims: Any = False) -> TracedArray:
    return _reduced(array.trace, "logaddexp", array, axis, keepdims)


def _by_strides(
    array: TracedArray, shape: Any = None, strides: Any = None, **_: Any
) -> TracedArray:
    """A view of a whole array's elements by distances in bytes, as `strides` gives them."""
    flat = array.reshape(-1)
    place = Index()
    for index, step in zip(identity(shape), strides, strict=True):
        place = place + index * (int(step) // array.dtype.itemsize)
    return flat.view_as(tuple(shape), dict.fromkeys(axes_of_shape(flat.shape), place))


def _block(trace: Trace, given: Any) -> TracedArray:
    depth, inner = 0, given
    while isinstance(inner, list):
        depth, inner = depth + 1, inner[0]
    if not depth:
        return trace.traced(given)
    parts = [_block(trace, part) for part in given]
    rank = max(depth, *(part.ndim for part in parts))
    return trace.joined([p[(None,) * (rank - p.ndim) + (Ellipsis,)] for p in parts], -depth)


def _average(
    array: TracedArray, axis: Any = None, weights: Any = None, *, keepdims: Any = False
) -> Any:
    if weights is None:
        return _mean(array, axis, keepdims=keepdims)
    heavy = array.trace.traced(weights)
    if heavy.ndim < array.ndim:
        heavy = heavy[
            tuple(slice(None) if n == axis % array.ndim else None for n in range(array.ndim))
        ]
    whole = heavy.broadcast(array.shape)
    return _sum(array * heavy, axis, None, None, keepdims) / _sum(whole, axis, None, None, keepdims)


def _copied(trace: Trace, target: Any, source: Any, casting: Any = None, where: Any = True) -> None:
    if not isinstance(target, TracedArray):
        trace.refuse("this np.copyto has no definition as an Algorithm")
    trace.write(target, where_(trace, where, source, target))


def _like(fill: Any) -> Callable[..., TracedArray]:
    def made(like: TracedArray, *more: Any, dtype: Any = None, shape: Any = None,
             **_: Any) -> TracedArray:  # fmt: skip
        value = more[0] if fill is None else fill
        kind = dtype or (more[0] if more and fill is not None else None) or like.dtype
        return created(like.trace, like.shape if shape is None else shape, value, kind)

    return made


def created(trace: Trace, shape: Any, fill: Any, dtype: Any) -> TracedArray:
    """A new array of one number, or of nothing yet."""
    given = [shape] if isinstance(shape, (int, np.integer)) else shape
    extents = [int(extent) for extent in given]
    if isinstance(fill, TracedArray) or np.ndim(fill):
        whole = trace.traced(fill)
        return trace.array(extents, dtype or whole.dtype, whole.broadcast(extents).value)
    value = UNDEFINED if isinstance(fill, str) else trace.number(fill)
    return trace.array(extents, dtype or float, value)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "sum": _sum,
    "prod": _reducer("multiply"),
    "max": _reducer("maximum"),
    "min": _reducer("minimum"),
    "any": _reducer("logical_or"),
    "all": _reducer("logical_and"),
    "mean": _mean,
    "average": _average,
    "var": _var,
    "std": lambda a, *r, **k: np.sqrt(_var(a, *r, **k)),
    "ptp": lambda a, *r, **k: np.max(a, *r, **k) - np.min(a, *r, **k),
    "count_nonzero": lambda a, *r, **k: np.sum(a != 0, *r, **k),
    "argmax": _arg("maximum"),
    "argmin": _arg("minimum"),
    "linalg.norm": _norm,
    "cumsum": lambda a, *r, **k: _accumulated(a, "add", *r, **k),
    "cumprod": lambda a, *r, **k: _accumulated(a, "multiply", *r, **k),
    "dot": _dot,
    "inner": lambda a, b: _tensordot(a, b, ([-1], [-1])),
    "vdot": lambda a, b: np.sum(a.reshape(-1) * np.ravel(b)),
    "tensordot": _tensordot,
    "transpose": lambda a, axes=None: a.transpose(*(() if axes is None else (axes,))),
    "swapaxes": lambda a, x, y: a.swapaxes(x, y),
    "moveaxis": _moveaxis,
    "reshape": lambda a, shape, order="C", **k: a.reshape(shape, order=order),
    "ravel": lambda a, order="C": a.reshape(-1, order=order),
    "squeeze": _reshaped(np.squeeze),
    "broadcast_to": lambda a, shape, **k: a.broadcast(
        (shape,) if isinstance(shape, int) else tuple(shape)
    ),
    "atleast_1d": _reshaped(np.atleast_1d),
    "atleast_2d": _reshaped(np.atleast_2d),
    "repeat": _repeated,
    "pad": _padded,
    "lib.stride_tricks.sliding_window_view": _windows,
    "lib.stride_tricks.as_strided": _by_strides,
    "take": _take,
    "delete": lambda a, obj, axis=None: _take(a, np.delete(np.arange(np.size(a, axis)), obj), axis),
    "tril": lambda a, k=0: _triangle(a, k, 1),
    "triu": lambda a, k=0: _triangle(a, k, -1),
    "clip": _clip,
    "diagonal": _diagonal,
    "diag": _on_diagonal,
    "trace": lambda a, *r, **k: _sum(_diagonal(a, *r, **k), -1),
    "fill_diagonal": _filled_diagonal,
    "round": _rounded,
    "around": _rounded,
    "sort": _sorter("largest"),
    "argsort": _sorter("place"),
    "partition": _sorter("largest", True),
    "argpartition": _sorter("place", True),
    "convolve": _convolved,
    "correlate": lambda a, v, mode="valid": _convolved(a, v, mode, False),
    "bincount": _counted,
    "copy": lambda a, **k: a.copy(),
    "zeros_like": _like(0),
    "ones_like": _like(1),
    "empty_like": _like("nothing"),
    "full_like": _like(None),
    "shape": lambda a: a.shape,
    "ndim": lambda a: a.ndim,
    "size": lambda a, axis=None: a.size if axis is None else a.shape[axis],
}
"""Functions of one array before all else, by the name that follows `np.`."""
FUNCTIONS |= {"amax": FUNCTIONS["max"], "amin": FUNCTIONS["min"]}
OF_SEVERAL: dict[str, Callable[..., Any]] = {
    "einsum": _einsum,
    "broadcast_arrays": lambda t, *a, **k: [
        t.traced(x).broadcast(np.broadcast_shapes(*map(np.shape, a))) for x in a
    ],
    "concatenate": _joined,
    "stack": lambda t, a, axis=0, **k: t.stacked([*map(t.traced, a)], axis),
    "vstack": lambda t, a, **k: _joined(t, [np.atleast_2d(t.traced(x)) for x in a]),
    "hstack": lambda t, a, **k: _joined(t, a, 0 if t.traced(a[0]).ndim == 1 else 1),
    "where": lambda t, m, *r: (
        where_(t, m, *r)
        if r
        else t.refuse("np.where of a mask alone has no definition as an Algorithm")
    ),
    "copyto": _copied,
    "putmask": lambda t, a, mask, values: _copied(t, a, values, where=mask),
    "block": _block,
    "searchsorted": _found_places,
    "choose": lambda t, n, choices: np.select(
        [np.equal(n, k) for k in range(len(choices) - 1)], choices[:-1], choices[-1]
    ),
    "result_type": lambda t, *a: np.result_type(
        *(x.dtype if isinstance(x, TracedArray) else x for x in a)
    ),
}
"""Those of sequences, masks and texts."""


def _named(function: Any) -> str:
    module = getattr(function, "__module__", "") or ""
    inside = module.partition("numpy.")[2]
    inside = "" if inside.startswith(("_core", "core", "lib._", "ma")) else inside
    inside = inside.removesuffix("._linalg").removesuffix("._stride_tricks_impl")
    return f"{inside}.{function.__name__}".lstrip(".")


def _function(trace: Trace, function: Any, args: Any, kwargs: Any) -> Any:
    """`__array_function__`."""
    name = _named(function)
    try:
        if name in OF_SEVERAL:
            return OF_SEVERAL[name](trace, *args, **kwargs)
        if name in FUNCTIONS:
            first, *more = args or (kwargs.pop("a"),)
            return FUNCTIONS[name](trace.traced(first), *more, **kwargs)
    except TypeError as error:
        if "argument" in str(error):
            trace.refuse(f"np.{name} with these arguments is not known to the tracer")
        raise
    try:
        return _by_own_code(trace, function)(*args, **kwargs)
    except (NotTraced, AttributeError, TypeError, NotImplementedError):
        return trace.refuse(f"np.{name} has no definition as an Algorithm")


def _by_own_code(trace: Trace, function: Any) -> Callable[..., Any]:
    """A function as NumPy's own Python code makes it of others, the arrays that it makes being traced ones.
    Raises NotImplementedError for one that is no Python."""
    code = getattr(function, "_implementation", None)
    if not isinstance(code, FunctionType):
        raise NotImplementedError
    names = trace.own_code.setdefault(code.__module__, {})
    for name, value in [] if names else code.__globals__.items():
        plain = isinstance(value, FunctionType) and value.__globals__ is code.__globals__
        kept = name in ("arange", "eye")  # of dimensions' numbers
        names[name] = value if kept else _rebound(value, names) if plain else seen(trace, value)
    return _rebound(code, names)


def _rebound(code: FunctionType, names: dict[str, Any]) -> FunctionType:
    """The function with other global names."""
    made = FunctionType(code.__code__, names, code.__name__, code.__defaults__, code.__closure__)
    made.__kwdefaults__ = code.__kwdefaults__
    return made


COMBINED = ("sum", "mean", "max", "min", "prod")
"""What combines elements of which nobody knows how many they are."""


class ChosenElements(NDArrayOperatorsMixin):
    """The elements of an array that a mask of its first dimensions chooses, in one row: those of `whole` where the
    `mask` holds. How many they are is not known, so they go with numbers and others of the same mask alone, into
    sums and the like, and back to where they come from."""

    def __init__(self, whole: TracedArray, mask: TracedArray) -> None:
        self.whole, self.mask, self.dtype = whole, mask.copy(), whole.dtype

    def of_whole(self, given: Any) -> Any:
        """An operand at all places."""
        if isinstance(given, ChosenElements):
            if given.mask.shape == self.mask.shape and given.mask.value == self.mask.value:
                return given.whole
        elif not np.ndim(given):
            return given
        return self.mask.trace.refuse(MASKED)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *given: Any, **more: Any) -> Any:
        (out,) = more.pop("out", None) or (None,)
        if method != "__call__" or more or (out is not None and out is not self):
            self.mask.trace.refuse(MASKED)
        made = ufunc(*map(self.of_whole, given))
        if out is None:
            return ChosenElements(made, self.mask)
        self.whole = made
        return self

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if args[0] is not self or _named(func).removeprefix("a") not in COMBINED:
            self.mask.trace.refuse(MASKED)
        return self._combined(_named(func), *args[1:], **kwargs)

    def _combined(self, name: str, axis: Any = None, **more: Any) -> Any:
        lead = self.mask.ndim
        if axis not in (None, 0):
            self.mask.trace.refuse(MASKED)
        mask = self.mask[(..., *(None,) * (self.whole.ndim - lead))]
        where = mask.broadcast(self.whole.shape)
        return FUNCTIONS[name](
            self.whole, None if axis is None else tuple(range(lead)), where=where, **more
        )

    def astype(self, dtype: Any) -> ChosenElements:
        """In another format."""
        return ChosenElements(self.whole.astype(dtype), self.mask)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        self.mask.trace.refuse(MASKED)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name not in COMBINED:
            self.mask.trace.refuse(MASKED)
        return lambda *args, **kwargs: self._combined(name, *args, **kwargs)


METHODS |= {
    name: FUNCTIONS[name]
    for name in (
        "sum prod max min any all argmax argmin mean var std ptp cumsum cumprod dot squeeze repeat take "
        "clip ravel diagonal round argsort argpartition choose").split()
    if name in FUNCTIONS
}  # fmt: skip
METHODS |= {
    "flatten": lambda a, order="C": a.reshape(-1, order=order).copy(),
    "sort": lambda a, axis=-1, **k: a.trace.write(a, _ordered(a, axis, "largest")),
    "fill": lambda a, number: a.trace.write(a, a.trace.traced(number)),
    "conj": lambda a: a,
    "view": lambda a, *r: (
        a
        if not r
        else a.trace.refuse("ndarray.view in another format has no definition as an Algorithm")
    ),
}
HANDLERS |= {
    "chosen": ChosenElements,
    "ufunc": _ufunc,
    "function": _function,
    "gather": _gathered,
    "where": where_,
}


NUMBER_TYPES = {float, int, *(t for t in np.sctypeDict.values() if issubclass(t, np.number))}


class NumberType:
    """A type of numbers that also converts computed ones; all else is as with the type itself."""

    def __init__(self, trace: Trace, kind: type) -> None:
        self._trace, self._kind = trace, kind
        self.dtype = np.dtype(kind)

    def __call__(self, *given: Any) -> Any:
        """The numbers in this type."""
        if not given or not _holds_traced(given[0]):
            return self._kind(*given)
        array = self._trace.traced(given[0])
        number = array.value if array.size == 1 else None
        return (
            self._kind(number.value) if isinstance(number, Constant) else array.astype(self.dtype)
        )

    def __instancecheck__(self, given: Any) -> bool:
        return isinstance(given, self._kind)

    def __eq__(self, other: Any) -> bool:
        return other is self or bool(other == self._kind)

    def __hash__(self) -> int:
        return hash(self._kind)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._kind, name)


def seen(trace: Trace, value: Any) -> Any:
    """What a reference that is traced sees of something of NumPy's or SciPy's."""
    if isinstance(value, type) and value in NUMBER_TYPES:
        return NumberType(trace, value)
    if isinstance(value, np.vectorize):
        return TracedNumpy(trace).vectorize(value.pyfunc)
    if isinstance(value, ModuleType):
        whole = value.__name__.startswith(("numpy", "scipy"))
        return TracedNumpy(trace, value) if whole else value
    module, name = str(getattr(value, "__module__", "")), getattr(value, "__name__", "")
    if module.startswith("scipy") and name in SCIPY:
        return lambda a, *r, **k: SCIPY[name](trace.traced(a), *r, **k)
    if not module.startswith("numpy") or not callable(value):
        return value
    made = getattr(TracedNumpy(trace), f"_{name}_", None)
    if made is not None or _named(value) not in FUNCTIONS:
        return value if made is None else made

    def called(*args: Any, **kwargs: Any) -> Any:
        if not any(map(_holds_traced, args)):
            return value(*args, **kwargs)
        return _function(trace, value, [_nested_if_traced(trace, a) for a in args], kwargs)

    return called


SCIPY: dict[str, Callable[..., Any]] = {
    "softmax": _softmax,
    "log_softmax": lambda a, axis=None: a - _log_sum(a, axis, keepdims=True),
    "logsumexp": _log_sum,
}
"""Functions of `scipy.special` that are no ufuncs."""


class TracedNumpy(ModuleType):
    """NumPy for a reference that is traced: what it makes anew can hold computed elements. So one of its modules,
    and of SciPy's."""

    def __init__(self, trace: Trace, module: ModuleType = np) -> None:
        super().__init__(module.__name__)
        self._trace, self._module = trace, module

    def __getattr__(self, name: str) -> Any:
        own = getattr(self, f"_{name}_", None) if not name.startswith("_") else None
        return own if own is not None else seen(self._trace, getattr(self._module, name))

    def _made(self, fill: Any) -> Callable[..., TracedArray]:
        def made(shape: Any, *more: Any, dtype: Any = None, **_: Any) -> TracedArray:
            value = more[0] if fill is None else fill
            rest = more[1:] if fill is None else more
            kind = rest[0] if rest and dtype is None else dtype
            if fill is None and kind is None and not isinstance(value, TracedArray):
                kind = np.asarray(value).dtype
            return created(self._trace, shape, value, kind)

        return made

    _zeros_ = property(lambda self: self._made(0))
    _ones_ = property(lambda self: self._made(1))
    _empty_ = property(lambda self: self._made("nothing"))
    _full_ = property(lambda self: self._made(None))

    def _array_(self, given: Any, dtype: Any = None, ndmin: int = 0, **more: Any) -> Any:
        if ndmin:
            made = self._array_(given, dtype)
            return made[(None,) * max(ndmin - made.ndim, 0) + (Ellipsis,)]
        if isinstance(given, TracedArray) or (
            isinstance(given, (list, tuple)) and _holds_traced(given)
        ):
            made = _nested(self._trace, given)
            return made.copy() if dtype is None else made.astype(dtype)
        return np.array(given, dtype=dtype)

    def _asarray_(self, given: Any, dtype: Any = None, **more: Any) -> Any:
        if isinstance(given, TracedArray) and dtype in (None, given.dtype):
            return given
        return self._array_(given, dtype)

    _ascontiguousarray_ = _asanyarray_ = _asarray_

    def _arange_(self, *args: Any, **kwargs: Any) -> Any:
        return self._trace.traced(np.arange(*args, **kwargs))

    def _eye_(self, *args: Any, **kwargs: Any) -> Any:
        return self._trace.traced(np.eye(*args, **kwargs))

    def _tri_(self, rows: int, columns: int | None = None, k: int = 0, dtype: Any = float) -> Any:
        ones = created(self._trace, (rows, columns or rows), 1, dtype)
        return _triangle(ones, k, 1)

    def _indices_(self, shape: Any, *_: Any, **more: Any) -> Any:
        whole = [self._trace.traced(np.arange(e)) for e in shape]
        views: list[Any] = [
            np.expand_dims(a, tuple(k for k in range(len(shape)) if k != n))
            for n, a in enumerate(whole)
        ]
        return (
            tuple(views)
            if more.get("sparse")
            else self._trace.stacked([v.broadcast(shape) for v in views], 0)
        )

    def _vectorize_(self, function: Any, **_: Any) -> Any:
        name = getattr(function, "__name__", "")
        if name not in MATHEMATICAL or getattr(function, "__module__", "") != "math":
            return lambda *args: self._trace.refuse(
                "np.vectorize of a function of one's own has no definition as an Algorithm"
            )
        return lambda x: elementwise(self._trace, name, [x])


def _holds_traced(given: Any) -> bool:
    return isinstance(given, TracedArray) or (
        isinstance(given, (list, tuple)) and any(map(_holds_traced, given))
    )


def _nested_if_traced(trace: Trace, given: Any) -> Any:
    return _nested(trace, given) if isinstance(given, list) and _holds_traced(given) else given


def _nested(trace: Trace, given: Any) -> TracedArray:
    if isinstance(given, (list, tuple)) and _holds_traced(given):
        return trace.stacked([_nested(trace, g) for g in given], 0)
    return trace.traced(given)
