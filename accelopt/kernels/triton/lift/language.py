"""`triton.language` for kernels that are traced: what its functions are of tiles."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any, cast

import numpy as np

from accelopt.algorithm.elementwise_functions import elementwise, select
from accelopt.algorithm.index import Axis, Index, index_of
from accelopt.algorithm.ir import Constant
from accelopt.algorithm.lookups import ComputedElements, bound
from accelopt.algorithm.numpy_functions import matmul, where_
from accelopt.algorithm.traced_array import axes_of_shape, identity, index_value
from accelopt.algorithm.value_nodes import (
    UNDEFINED,
    Choice,
    Element,
    Product,
    ScanElement,
    Sum,
    Value,
    children,
)
from accelopt.algorithm.values import Values
from accelopt.kernels.triton.lift.execution import Execution
from accelopt.kernels.triton.lift.kernel_trace import Tile, flat
from accelopt.kernels.triton.lift.tiles import (
    FORMATS,
    BlockPointer,
    ChosenPointer,
    Pointer,
    PointerType,
)

UNARY = {
    **{name: name for name in (
        "exp exp2 log log2 sqrt sin cos tanh floor ceil erf log1p expm1 trunc sinh cosh tan").split()},
    "abs": "absolute", "fabs": "absolute", "sqrt_rn": "sqrt",
    "fast_expf": "exp", "fast_logf": "log", "fast_sinf": "sin", "fast_cosf": "cos",
}  # fmt: skip
"""Functions of one tile, by NumPy's names."""
BINARY = {
    "maximum": "maximum", "minimum": "minimum", "pow": "power", "fdiv": "divide", "div_rn": "divide",
    "fmod": "fmod", "fmax": "maximum", "fmin": "minimum",
}  # fmt: skip
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "program_id": lambda tl, axis: tl._execution.program_id(int(axis)),
    "num_programs": lambda tl, axis: tl._execution.num_programs(int(axis)),
    "range": lambda tl, *given, **_: tl._execution.range_of(*given),
    "static_range": lambda tl, *given, **_: tl._execution.range_of(*given, static=True),
    "zeros": lambda tl, shape, dtype=np.float32: tl.full(shape, 0, dtype),
    "zeros_like": lambda tl, x: tl.full(x.shape, 0, x.dtype),
    "cast": lambda tl, x, dtype, *more, **named: tl.to_tensor(x).to(dtype, *more, **named),
    "expand_dims": lambda tl, x, axis: np.expand_dims(x, axis),
    "broadcast_to": lambda tl, x, *shape: tl.to_tensor(x).broadcast_to(*shape),
    "broadcast": lambda tl, x, y: [
        one.broadcast(np.broadcast_shapes(x.shape, y.shape)) for one in (x, y)],
    "trans": lambda tl, x, *order: x.trans(*order),
    "permute": lambda tl, x, *order: x.transpose(*order),
    **dict.fromkeys(("reshape", "view"), lambda tl, x, *shape, **_: x.reshape(*shape)),
    "ravel": lambda tl, x, **_: x.reshape(-1),
    "join": lambda tl, x, y: tl._trace.stacked([tl._trace.traced(x), tl._trace.traced(y)], -1),
    "split": lambda tl, x: (x[..., 0], x[..., 1]),
    "interleave": lambda tl, x, y: tl.join(x, y).reshape(*x.shape[:-1], -1),
    "cat": lambda tl, x, y, can_reorder=False, dim=0: tl._trace.joined([x, y], dim),
    "flip": lambda tl, x, dim=-1: np.flip(x, dim),
    "cdiv": lambda tl, x, y: (x + y - 1) // y,
    "where": lambda tl, mask, yes, no: where_(tl._trace, mask, yes, no),
    "sigmoid": lambda tl, x: elementwise(tl._trace, "expit", [x]),
    "rsqrt": lambda tl, x, **_: 1.0 / elementwise(tl._trace, "sqrt", [x]),
    "clamp": lambda tl, x, low, high, **_: tl.minimum(tl.maximum(x, low), high),
    "fma": lambda tl, x, y, z: tl._trace.traced(x) * y + z,
    "softmax": lambda tl, x, *_: np.exp(x - np.max(x, 0)) / np.sum(np.exp(x - np.max(x, 0)), 0),
    "sum": lambda tl, x, axis=None, keep_dims=False, **_: tl._reduced("add", x, axis, keep_dims),
    "max": lambda tl, x, axis=None, return_indices=False, return_indices_tie_break_left=True,
                  keep_dims=False: tl._reduced("maximum", x, axis, keep_dims, return_indices),
    "min": lambda tl, x, axis=None, return_indices=False, return_indices_tie_break_left=True,
                  keep_dims=False: tl._reduced("minimum", x, axis, keep_dims, return_indices),
    "argmax": lambda tl, x, axis=None, *_, keep_dims=False, **__: np.argmax(
        x, axis, keepdims=keep_dims),
    "argmin": lambda tl, x, axis=None, *_, keep_dims=False, **__: np.argmin(
        x, axis, keepdims=keep_dims),
    "cumsum": lambda tl, x, axis=0, reverse=False, **_: _scanned(np.cumsum, x, axis, reverse),
    "cumprod": lambda tl, x, axis=0, reverse=False: _scanned(np.cumprod, x, axis, reverse),
    "atomic_add": lambda tl, at, x, mask=None, *_, **__: tl._stored(at, x, mask, "add"),
    "atomic_max": lambda tl, at, x, mask=None, *_, **__: tl._stored(at, x, mask, "maximum"),
    "atomic_min": lambda tl, at, x, mask=None, *_, **__: tl._stored(at, x, mask, "minimum"),
    "advance": lambda tl, block, offsets: block.at(
        [a + b for a, b in zip(block.offsets, offsets, strict=True)]),
    **dict.fromkeys(("multiple_of", "max_contiguous", "max_constancy"), lambda tl, x, *_: x),
    **dict.fromkeys(("static_assert", "static_print", "device_print", "debug_barrier",
                     "device_assert", "assume"), lambda tl, *_, **__: None),
}  # fmt: skip
"""Functions of the language, which are given it first."""
REFUSED = {
    "rand": "random numbers have", "randn": "random numbers have", "randint": "random numbers have",
    "rand4x": "random numbers have", "philox": "random numbers have", "sort": "sorting has",
    "topk": "sorting has", "histogram": "a histogram has", "inline_asm_elementwise": "PTX has",
    "atomic_cas": "a lock has", "atomic_xchg": "a lock has", "dot_scaled": "a scaled product has",
}  # fmt: skip


class Absent:
    """A name of a package that is not there: it may be imported, decorate and be a base class."""

    def __init__(
        self, name: str, refuse: Callable[[str], Any], lenient: Callable[[], bool]
    ) -> None:
        self.__name__ = name
        self._refuse, self._lenient = refuse, lenient

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Absent(f"{self.__name__}.{name}", self._refuse, self._lenient)

    def __call__(self, *given: Any, **more: Any) -> Any:
        if len(given) == 1 and not more and callable(given[0]) and not isinstance(given[0], Absent):
            return given[0]
        if self._lenient():
            return self
        return self._refuse(f"{self.__name__} is not known to the tracer")

    def __mro_entries__(self, bases: Any) -> tuple[type, ...]:
        return ()

    def __getitem__(self, key: Any) -> Absent:
        return self

    def __or__(self, other: Any) -> Absent:
        return self

    __ror__ = __or__

    def __bool__(self) -> bool:
        return False if self._lenient() else bool(self._refuse(f"{self.__name__} is not known"))

    def __iter__(self) -> Any:
        return iter(())

    def __index__(self) -> int:
        return 0 if self._lenient() else int(self._refuse(f"{self.__name__} is not known"))

    def __lt__(self, other: Any) -> bool:
        return False

    def __ge__(self, other: Any) -> bool:
        return True  # a version that nobody knows is a new one

    __le__, __gt__ = __lt__, __ge__


class Language(ModuleType):
    """`triton.language`, and its `math`, `extra.libdevice` and the like, which are the same."""

    def __init__(self, execution: Execution, absent: Callable[[str], Any]) -> None:
        super().__init__("triton.language")
        self.__path__: list[str] = []
        self._execution, self._trace, self._absent = execution, execution.trace, absent
        vars(self).update(FORMATS)
        self.float8e4b15 = self.float8e4b8 = self.float8e5b16 = FORMATS["float8e5"]
        self.constexpr = constexpr
        self.dtype = self.tensor = self.core = self
        self.pointer_type = PointerType
        self.inf = math.inf

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        trace = self._trace
        if name in FUNCTIONS:
            return functools.partial(FUNCTIONS[name], self)
        if name in UNARY:
            return lambda x, *_, **__: elementwise(trace, UNARY[name], [x])
        if name in BINARY:
            return lambda x, y, *_, **__: elementwise(trace, BINARY[name], [x, y])
        if name in REFUSED:
            return lambda *_, **__: trace.refuse(f"{REFUSED[name]} no definition as an Algorithm")
        if name in ("math", "extra", "cuda", "libdevice", "hip", "standard", "semantic"):
            return self
        return self._absent(f"tl.{name}")

    def full(self, shape: Any, value: Any, dtype: Any, **_: Any) -> Tile:
        made = self._trace.traced(value)
        extents = tuple(int(n) for n in (shape if isinstance(shape, (tuple, list)) else [shape]))
        return cast(Tile, made.astype(dtype).broadcast(extents))

    def to_tensor(self, x: Any) -> Any:
        return x if isinstance(x, (Pointer, ChosenPointer, BlockPointer)) else self._trace.traced(x)

    def arange(self, start: Any, end: Any) -> Tile:
        extent = int(end) - int(start)
        (index,) = identity((extent,))
        value = self._trace.values.position(index + int(start))
        return self._trace.array((extent,), np.int32, value)

    def swizzle2d(self, i: Any, j: Any, rows: Any, columns: Any, group: Any) -> Any:
        number, in_group = i * columns + j, group * columns
        first = number // in_group * group
        size = np.minimum(self._trace.traced(rows - first), group)
        number = number % in_group
        return first + number % size, number // size

    def _reduced(self, name: str, x: Any, axis: Any, keep: bool, indices: bool = False) -> Any:
        tile, where = self._trace.traced(x), axis if axis is None else int(axis)
        found = getattr(np, name).reduce(tile, axis=where, keepdims=keep)
        place = np.argmax if name == "maximum" else np.argmin
        return (found, place(tile, where, keepdims=keep)) if indices else found

    def _combiner(self, function: Callable[..., Any], count: int) -> str:
        """What a function combines two elements, or two pairs of elements, by."""
        values = self._trace.values
        held = [
            values.same(Element(f"operand {n}", n, "float32", Index())) for n in range(2 * count)
        ]
        made = function(*(self._trace.array((), np.float32, value) for value in held))
        found = [one.value for one in (made if isinstance(made, (tuple, list)) else [made])]
        if count == 1:
            tiles = [self._trace.array((), np.float32, value) for value in held]
            for name in ("add", "multiply", "maximum", "minimum", "logical_and", "logical_or"):
                if found == [getattr(np, name)(*tiles).value]:
                    return name
        if count == 2:
            product = values.product([(held[0], 1.0), (held[2], 1.0)])
            scaled = values.product([(held[1], 1.0), (held[2], 1.0)])
            if found == [product, values.sum([(scaled, 1.0), (held[3], 1.0)])]:
                return "recurrence"
        return self._trace.refuse("what a reduction or a scan combines by is no known function")

    def reduce(self, x: Any, axis: Any, combine_fn: Any, keep_dims: bool = False) -> Any:
        if isinstance(x, (tuple, list)):
            self._trace.refuse(
                "a reduction of several tiles at once has no definition as an Algorithm"
            )
        return self._reduced(self._combiner(combine_fn, 1), x, axis, keep_dims)

    def associative_scan(self, x: Any, axis: Any, combine_fn: Any, reverse: bool = False) -> Any:
        given = list(x) if isinstance(x, (tuple, list)) else [x]
        name = self._combiner(combine_fn, len(given))
        given = [np.flip(cast(Any, one), axis) for one in given] if reverse else given
        if name == "recurrence":
            factor, term = given
            own = axes_of_shape(term.shape)[axis]
            along = Axis(f"i{self._execution.names()}", own.extent)
            parts = [
                self._trace.values.substitute(one.value, {own: index_of(along)}) for one in given
            ]
            made = ScanElement("multiply", parts[0], "add", parts[1], self._trace.values.number(0),
                               along, index_of(own))  # fmt: skip
            scan = self._trace.array(term.shape, term.dtype, self._trace.values.same(made))
            found = [np.multiply.accumulate(cast(Any, factor), axis), scan]
        else:
            found = [getattr(np, name).accumulate(given[0], axis)]
        found = [np.flip(cast(Any, one), axis) for one in found] if reverse else found
        return tuple(found) if isinstance(x, (tuple, list)) else found[0]

    def dot(self, a: Tile, b: Tile, acc: Any = None, *_: Any, out_dtype: Any = np.float32,
            **__: Any) -> Any:  # fmt: skip
        product = matmul(self._trace, a, b)
        made = self._trace.array(product.shape, out_dtype, product.value)
        return made if acc is None else made + acc

    # Memory.

    def _loaded(self, pointer: Pointer, offset: Value) -> Value:
        """The element at an offset, a value over d0, d1, ..."""
        trace, values, buffer = self._trace, self._trace.values, pointer.buffer
        index = index_value(offset)
        if index is not None:
            return self._execution.read(buffer, index)
        choice = _choice_of(offset)
        if choice is not None:
            pair = (
                self._loaded(pointer, trace.whole_number(values.replace(offset, choice, part)))
                for part in (choice.on_true, choice.on_false)
            )
            return values.where(choice.conditions, *pair)
        numbers = dict[Axis, Value]()
        address = self._by_numbers(offset, pointer, numbers)
        try:
            return bound(values, self._execution.read(buffer, address), numbers)
        except ComputedElements:
            return self._trace.refuse("it gathers from what this kernel or another one computed")

    def _by_numbers(self, offset: Value, pointer: Pointer, numbers: dict[Axis, Value]) -> Index:
        """An address in which axes are numbers that are known at run time. Each is taken to stay below
        what the next larger multiple counts, as a label does in its row; blocks that follow each other from
        such a number on, as a sequence's rows do, count the same as it."""
        values, (known, terms) = self._trace.values, flat(offset)
        rest: dict[int, list[tuple[Value, float]]] = {}
        for term, factor in terms:
            value, times = _factored(values, term)
            if not _holds_element(value) or factor * times != int(factor * times):
                self._trace.refuse("an address is no sum of multiples of a program's number, axes "
                                   "and numbers of inputs")  # fmt: skip
            step = abs(int(factor * times))
            rest.setdefault(step, []).append((value, factor * times / step))
        counted = {abs(factor): axis.bounds[1] + 1 for axis, factor in known.terms}
        for step, group in sorted(rest.items()):
            beside = step
            while beside in counted and counted[beside] > 1:
                beside *= counted[beside]
            above = min((c for c in counted if c > beside), default=pointer.buffer.size)
            axis = Axis(f"?at{self._execution.names()}", max(1, -(-above // step)))
            numbers[axis] = values.sum(group)
            known = known + index_of(axis) * step
        return known

    def load(self, pointer: Any, mask: Any = None, other: Any = None, *_: Any,
             boundary_check: Any = None, **__: Any) -> Any:  # fmt: skip
        trace = self._trace
        if isinstance(pointer, ChosenPointer):
            yes, no = (self.load(one, mask, other) for one in (pointer.on_true, pointer.on_false))
            value = select(trace, pointer.chosen, yes.value, no.value)
            return trace.array(yes.shape, np.result_type(yes.dtype, no.dtype), value)
        if isinstance(pointer, BlockPointer):
            pointer, mask = self._block(pointer, boundary_check or ())
        if not isinstance(pointer, Pointer):
            trace.refuse("a load from what is no pointer into a tensor")
        held = trace.traced(True if mask is None else mask)
        shape = np.broadcast_shapes(pointer.shape, held.shape)
        offset = pointer.offset.broadcast(shape).value
        element = self._loaded(pointer, offset)
        if element is UNDEFINED:
            element = trace.values.number(math.nan)
        absent = trace.traced(0 if other is None else other).broadcast(shape)
        made = select(trace, held.broadcast(shape).value, element, absent.value)
        return trace.array(shape, pointer.buffer.dtype, made)

    def store(self, pointer: Any, value: Any, mask: Any = None, *_: Any,
              boundary_check: Any = None, **__: Any) -> None:  # fmt: skip
        if isinstance(pointer, BlockPointer):
            pointer, mask = self._block(pointer, boundary_check or ())
        self._stored(pointer, value, mask, "")

    def _stored(self, pointer: Any, value: Any, mask: Any, combiner: str) -> None:
        trace = self._trace
        if isinstance(pointer, ChosenPointer):
            values = trace.values
            other = select(trace, pointer.chosen, values.number(0), values.number(1))
            cases = ((pointer.chosen, pointer.on_true), (other, pointer.on_false))
            for truth, one in cases:
                with self._execution.under(truth):
                    self._stored(one, value, mask, combiner)
            return
        if not isinstance(pointer, Pointer):
            trace.refuse("a store to what is no pointer into a tensor")
        held = trace.traced(True if mask is None else mask)
        given = trace.traced(value).astype(pointer.buffer.dtype)
        shape = np.broadcast_shapes(pointer.shape, held.shape)
        offset = pointer.offset.broadcast(shape)
        pair = given.broadcast(shape).value, held.broadcast(shape).value
        whole = Pointer(pointer.buffer, cast(Tile, offset), pointer.radix)
        self._stored_by_cases(whole, offset.value, *pair, combiner)

    def _stored_by_cases(
        self, pointer: Pointer, offset: Value, value: Value, mask: Value, combiner: str
    ) -> None:
        trace, numbers = self._trace, dict[Axis, Value]()
        address, choice = index_value(offset), _choice_of(offset)
        if address is None and choice is not None:
            parts = [
                trace.whole_number(trace.values.replace(offset, choice, part))
                for part in (choice.on_true, choice.on_false)
            ]
            if all(index_value(p) is not None or _choice_of(p) is not None for p in parts):
                values = trace.values
                one, zero = values.number(1), values.number(0)
                held = values.where(choice.conditions, one, zero)
                negated = tuple(c * -1 - 1 for c in choice.conditions)
                facts = (choice.conditions, negated if len(negated) == 1 else ())
                chosen = (held, select(trace, held, zero, one))
                for part, known, case in zip(parts, facts, chosen, strict=True):
                    kept = select(trace, case, values.under(mask, known), zero)
                    given = values.under(value, known)
                    self._stored_by_cases(pointer, part, given, kept, combiner)
                return
        if address is None:
            address = self._by_numbers(offset, pointer, numbers)
        self._execution.write(pointer, address, value, mask, combiner, numbers)

    def make_block_ptr(self, base: Pointer, shape: Any, strides: Any, offsets: Any,
                       block_shape: Any, order: Any = None) -> BlockPointer:  # fmt: skip
        blocks = tuple(int(n) for n in block_shape)
        return BlockPointer(base, tuple(shape), tuple(strides), tuple(offsets), blocks)

    def make_tensor_descriptor(self, base: Pointer, shape: Any, strides: Any, block_shape: Any,
                               **_: Any) -> Descriptor:  # fmt: skip
        blocks = tuple(int(n) for n in block_shape)
        zeros = (0,) * len(blocks)
        return Descriptor(self, BlockPointer(base, tuple(shape), tuple(strides), zeros, blocks))

    def _block(self, block: BlockPointer, checked: Sequence[int]) -> tuple[Pointer, Any]:
        """The pointers of a block, and where it is inside of the tensor along what is checked."""
        pointer, mask = block.base, None
        rank = len(block.block_shape)
        for n, (extent, stride, start, length) in enumerate(
            zip(block.shape, block.strides, block.offsets, block.block_shape, strict=True)
        ):
            key = tuple(slice(None) if k == n else None for k in range(rank))
            place = cast(Any, self.arange(0, length) + start)[key]
            pointer = pointer + place * stride
            if n in checked:
                inside = (place >= 0) & (place < extent)
                mask = inside if mask is None else mask & inside
        return pointer, mask


class Descriptor:
    """A tensor descriptor: blocks are loaded and stored where they are asked for, within the tensor."""

    def __init__(self, language: Language, block: BlockPointer) -> None:
        self._language, self._block = language, block
        self.dtype, self.block_shape, self.shape = block.dtype, block.block_shape, block.shape

    def load(self, offsets: Any) -> Any:
        """A block."""
        return self._language.load(self._block.at(offsets), boundary_check=range(len(offsets)))

    def store(self, offsets: Any, value: Any) -> None:
        """A block."""
        checked = range(len(offsets))
        self._language.store(self._block.at(offsets), value, boundary_check=checked)


class _Int(int):
    value = property(int)


class _Float(float):
    value = property(float)


class constexpr:
    """`tl.constexpr`: a number is itself, and has a `value`."""

    def __new__(cls, value: Any) -> Any:
        kind = {int: _Int, float: _Float}.get(type(value))
        return value if kind is None else kind(value)


def _choice_of(offset: Value) -> Choice | None:
    """A choice that an offset is made of."""
    terms = [term for term, _ in offset.terms] if isinstance(offset, Sum) else [offset]
    return next((term for term in terms if isinstance(term, Choice)), None)


def _holds_element(value: Value) -> bool:
    """Whether a value is made of an input's elements."""
    return isinstance(value, Element) or any(map(_holds_element, children(value)))


def _factored(values: Values, value: Value) -> tuple[Value, float]:
    """A value by the number that it is a multiple of."""
    if isinstance(value, Product):
        return values.product(value.factors), value.coefficient
    if isinstance(value, Choice) and value.on_false == Constant(0.0):
        whole, times = _factored(values, value.on_true)
        return values.where(value.conditions, whole, value.on_false), times
    return value, 1.0


def _scanned(function: Callable[..., Any], x: Any, axis: Any, reverse: bool) -> Any:
    found = function(np.flip(x, axis) if reverse else x, axis)
    return np.flip(found, axis) if reverse else found
