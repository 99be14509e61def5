"""From a NumPy reference to its Algorithm: `forward` runs once on arrays that say what they are.

Loops run as Python runs them. What a variable carries from one iteration to the next is named at the
end of each (`_Loops`), so that afterwards equal iterations are one recurrence, sum or extreme.
"""

from __future__ import annotations

import ast
import builtins
import functools
import inspect
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from accelopt.algorithm.axis_joining import joined
from accelopt.algorithm.canonical_rewriting import rewritten, whole
from accelopt.algorithm.deep_recursion import deep_recursion
from accelopt.algorithm.definitions import DefinedOutput, UndefinedOutput, algorithm_of
from accelopt.algorithm.index import Axis, Index, digits, element_number, index_of
from accelopt.algorithm.ir import Algorithm, Array, Constant, Position
from accelopt.algorithm.normal_forms import apply
from accelopt.algorithm.numpy_functions import seen
from accelopt.algorithm.reductions import fold
from accelopt.algorithm.rerolling import progression
from accelopt.algorithm.traced_array import (
    NotTraced,
    Storage,
    Trace,
    TracedArray,
    axes_of_shape,
    identity,
)
from accelopt.algorithm.value_nodes import (
    UNDEFINED,
    Application,
    Element,
    Fold,
    Product,
    ScanElement,
    Sum,
    Value,
    every,
)
from accelopt.algorithm.values import Values, fresh_axis

LEAST_ITERATIONS = 3
"""Iterations from which on a loop is looked at as one."""
MOST_UNROLLED = 64
"""Iterations of a loop without a form that are composed one by one."""
SPAN = 1 << 40
"""Addresses between one value that a loop carries and the next; elements begin in the middle, for those
that a condition excludes may lie on either side."""
NO_FORM = "what this loop carries is neither a sum, an extreme nor a first-order recurrence"
FIRST_CARRIED = 10_000
"""The number of the first array that stands for what a loop carries, among the inputs."""
TARGET_FORMATS = {"float64": "float32", "int64": "int32", "uint64": "uint32"}
"""Formats that NeuronCores have not, and what kernels have for them."""


class TracedReference(NamedTuple):
    """What a reference computes of what a kernel is given: the Algorithm, whose inputs are the kernel's
    arrays under `parameters`' names. Plain numbers among the parameters are no inputs."""

    algorithm: Algorithm
    parameters: tuple[str, ...]
    outputs: tuple[str, ...]


def trace_reference(
    path: str | Path, source: str, inputs: Sequence[Any], *, ranked_places: bool = True,
    parameters: Sequence[str] = (),
) -> TracedReference:  # fmt: skip
    """The Algorithm of the reference in the text `source`, which lies at `path`, for `inputs` of
    `get_inputs`: their shapes, formats and plain numbers count; `ranked_places` as `Trace` has it. A kernel's own
    `parameters` are the names of what it is given. Raises NotTraced, with the line and
    NumPy's function, for what has no definition as an Algorithm."""
    path = str(Path(path).resolve())
    trace = Trace(path)
    trace.ranked_places = ranked_places
    loops = _Loops(trace)
    with deep_recursion(), warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        module = _module(path, source, trace, loops)
        forward = module["forward"]
        names = _parameters(forward, len(inputs))
        for label, value in zip(names, inputs, strict=False):
            _refuse_empty(label, np.shape(value), path)
        try:
            kernel = _kernel_inputs(trace, module, inputs, names, parameters)
            returned = _blamed(trace, forward, kernel.given)
            if isinstance(returned, dict):
                raise NotTraced("forward returns a dict instead of an array or a tuple", path)
            outputs = returned if isinstance(returned, (tuple, list)) else (returned,)
            algorithm = _algorithm(trace, loops, kernel, outputs, Path(path).stem)
        except RecursionError:
            raise NotTraced("too many operations build on each other", path) from None
    return TracedReference(algorithm, kernel.names, tuple(a.name for a in algorithm.returned))


def _blamed(trace: Trace, function: Callable[..., Any], given: Sequence[Any]) -> Any:
    """The function's result. An error is the reference's, and names its line."""
    try:
        return function(*given)
    except (NotTraced, RecursionError):
        raise
    except Exception as error:
        lines = [f.lineno for f in inspect.trace() if f.filename == trace.path]
        said = f"{type(error).__name__}: {error}".splitlines()[0]
        raise NotTraced(said, trace.path, lines[-1] if lines else 0) from error


# The module.


def _extreme(
    trace: Trace, pairwise: np.ufunc, plain: Callable[..., Any], *given: Any, **more: Any
) -> Any:
    """Python's `max` or `min`, of computed numbers by what NumPy has for two."""
    if len(given) < 2 or more or not any(isinstance(one, TracedArray) for one in given):
        return plain(*given, **more)
    return functools.reduce(pairwise, map(trace.traced, given))


def _module(path: str, source: str, trace: Trace, loops: _Loops) -> dict[str, Any]:
    """The names of the reference's module, whose loops tell `loops` of their iterations, and whose
    functions see a NumPy that makes traced arrays."""
    tree = _Marked().visit(ast.parse(source, filename=path))
    extremes = {
        name: functools.partial(
            _extreme, trace, getattr(np, f"{name}imum"), getattr(builtins, name)
        )
        for name in ("max", "min")
    }
    names: dict[str, Any] = {
        "__name__": "reference",
        "__file__": path,
        "__loops__": loops,
    } | extremes
    sys.path.insert(0, str(Path(path).parent))
    try:
        exec(compile(ast.fix_missing_locations(tree), path, "exec"), names)
    finally:
        sys.path.remove(str(Path(path).parent))
    seen_names = {name: seen(trace, value) for name, value in names.items()}
    names |= seen_names | {kind.__name__: seen(trace, kind) for kind in (float, int)}
    return names


class _Marked(ast.NodeTransformer):
    """Loops in functions say when they are entered, and when an iteration ends."""

    def __init__(self) -> None:
        self.depth = 0
        self.number = 0

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        """Inside of a function."""
        self.depth += 1
        self.generic_visit(node)
        self.depth -= 1
        return node

    def _loop(self, node: ast.For | ast.While) -> Any:
        self.generic_visit(node)
        if not self.depth:
            return node
        self.number += 1
        place = f"{self.number}, {node.lineno}, locals()"
        enter, leave = (
            ast.parse(f"__loops__.{call})").body[0]
            for call in (f"enter({place}, {sorted(_changed(node))}", f"leave({place}")
        )
        for mark in (enter, leave):
            for part in ast.walk(mark):
                ast.copy_location(part, node)
        node.body.append(leave)
        return [enter, node]

    visit_For = visit_While = _loop


def _changed(loop: ast.For | ast.While) -> set[str]:
    """The variables that the body of a loop assigns to, as a whole or in part."""
    found: set[str] = set()
    for node in (part for statement in loop.body for part in ast.walk(statement)):
        match node:
            case ast.Name(id=name, ctx=ast.Store()):
                found.add(name)
            case ast.AugAssign(target=ast.Subscript(value=ast.Name(id=name))):
                found.add(name)
            case ast.keyword(arg="out", value=ast.Name(id=name)):
                found.add(name)
            case ast.Subscript(value=ast.Name(id=name), ctx=ast.Store()):
                found.add(name)
    return found


def _parameters(forward: Callable[..., Any], count: int) -> tuple[str, ...]:
    names = [p.name for p in inspect.signature(forward).parameters.values()
             if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]  # fmt: skip
    return tuple(names[n] if n < len(names) else f"x{n}" for n in range(count))


# Inputs.


class _Kernel(NamedTuple):
    """What a kernel is given, and what `forward` is given of it."""

    arrays: tuple[Array, ...]
    names: tuple[str, ...]
    given: list[Any]


def _kernel_inputs(
    trace: Trace, module: Mapping[str, Any], inputs: Sequence[Any], names: Sequence[str],
    own_names: Sequence[str],
) -> _Kernel:  # fmt: skip
    """`transform_to_nki_inputs` may reshape and permute; whose element each one is, is turned round."""
    values = trace.values
    plain = [
        trace.array(v.shape, v.dtype, values.same(Element(f"in {n}", n, v.dtype.name, element_number(
            identity(v.shape), v.shape)))) if isinstance(v, np.ndarray) else v
        for n, v in enumerate(inputs)
    ]  # fmt: skip
    transform = module.get("transform_to_nki_inputs")
    turned = list(plain) if transform is None else list(_blamed(trace, transform, [list(plain)]))
    own: dict[int, tuple[int, TracedArray]] = {}
    kernel_names: list[str] = []
    arrays: list[Array] = []
    spare = iter(n for n, v in enumerate(inputs) if not isinstance(v, np.ndarray))
    for number, array in enumerate(turned):
        if not isinstance(array, TracedArray):
            kernel_names.append(names[next(spare, number)])
            continue
        value = array.value
        if not isinstance(value, Element):
            trace.refuse("transform_to_nki_inputs does more than reshape and permute its inputs")
        place = value.number
        name = names[place] if names[place] not in kernel_names else f"{names[place]}_{number}"
        kernel_names.append(name)
        dtype = TARGET_FORMATS.get(array.dtype.name, array.dtype.name)
        arrays.append(Array(name, array.shape, dtype, array.shape))
        if place not in own:
            own[place] = (number, array)
    if own_names and len(own_names) != len(kernel_names):
        trace.refuse(f"the kernel takes {len(own_names)} inputs of {len(kernel_names)}")
    called = dict(zip(kernel_names, own_names or kernel_names, strict=True))
    kernel_names = [*called.values()]
    arrays = [replace(array, name=called[array.name]) for array in arrays]
    given: list[Any] = []
    for n, value in enumerate(inputs):
        if not isinstance(value, np.ndarray):
            given.append(value)
            continue
        if n not in own:
            trace.refuse(f"transform_to_nki_inputs leaves {names[n]} out")
        number, array = own[n]
        there = array.value
        assert isinstance(there, Element)
        address = _inverse(
            there.address, array.shape, element_number(identity(value.shape), value.shape)
        )
        if address is None:
            trace.refuse("transform_to_nki_inputs does more than reshape and permute its inputs")
        element = Element(kernel_names[number], number, value.dtype.name, address)
        given.append(trace.array(value.shape, value.dtype, values.same(element)))
        given[-1].storage.input = element.array
    return _Kernel(tuple(arrays), tuple(kernel_names), given)


def _inverse(address: Index, shape: Sequence[int], wanted: Index) -> Index | None:
    """Where in an array of a `shape` the element lies whose address before was `wanted`, elements of
    the array having come from `address`; None where that is no permutation of digits."""
    if address == element_number(identity(shape), shape):
        return wanted
    if address.constant or not address.is_affine:
        return None
    below = 1
    place: dict[Axis, Index] = {}
    for axis, step in sorted(address.terms, key=lambda term: term[1]):
        assert isinstance(axis, Axis)
        if step != below:
            return None
        below *= axis.extent
        place[axis] = wanted // step % axis.extent
    axes = axes_of_shape(shape)
    if any(axis.extent > 1 and axis not in place for axis in axes):
        return None
    return element_number([place.get(axis, Index()) for axis in axes], shape)


# Loops.


@dataclass
class _Chain:
    """What one variable holds after each iteration of a loop: `values` over d0, d1, ... of its shape,
    made of `initial` and of the elements of `name`, the values before."""

    name: str
    number: int
    line: int
    shape: tuple[int, ...]
    dtype: np.dtype
    initial: Value | None
    values: list[Value] = field(default_factory=list)
    form: _Form | None = None


class _Stage(NamedTuple):
    """An array between inputs and outputs, with its value over d0, d1, ..."""

    name: str
    number: int
    shape: tuple[int, ...]
    dtype: np.dtype
    value: Value


class _Form(NamedTuple):
    """What every iteration, counted by `axis`, makes of the one before: `term` alone ("each"),
    `factor` times it plus `term` ("linear"), or an extreme of it and `term`."""

    kind: str
    axis: Axis
    term: Value
    factor: Value


class _Loops:
    """Names what loops carry. Its methods are called by the reference."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.chains: dict[str, _Chain] = {}
        self.stages: dict[str, _Stage] = {}
        self._before: dict[int, dict[str, Value]] = {}
        self._storages: dict[int, list[Storage]] = {}
        self._resolved: dict[tuple[str, Index], Value] = {}

    def enter(self, loop: int, line: int, names: Mapping[str, Any], changed: Sequence[str]) -> None:
        """Before the first iteration: what the loop changes is named as it is before."""
        before = self._before[loop] = dict[str, Value]()
        self._storages[loop] = [a.storage for a in names.values() if isinstance(a, TracedArray)]
        for name, array in names.items():
            if not self._is_known(array):
                continue
            value = array.value
            if name in changed and self._is_held(array) and self._chain(value, array.shape) is None:
                chain = self._begun(line, value, array.shape, array.dtype)
                value = self._element(chain, Index())
                self.trace.write(array, self.trace.array(array.shape, array.dtype, value))
            before[name] = value

    def leave(self, loop: int, line: int, names: Mapping[str, Any]) -> None:
        """After an iteration: what has changed is named."""
        before, there = self._before[loop], {*map(id, self._storages[loop])}
        for name, array in names.items():
            if isinstance(array, TracedArray) and id(array.storage) not in there:
                self.trace.flush(array.storage)  # made in this iteration, and whole by now
                self._storages[loop].append(array.storage)
            if not self._is_known(array):
                continue
            value, old = array.value, before.get(name)
            named = isinstance(value, (Element, Constant, Position))
            if value is not old and not named and self._is_held(array):
                whole_value = value
                value = self._named(line, old, value, array.shape, array.dtype)
                self._assigned(names, array.shape, whole_value, value)
                self.trace.write(array, self.trace.array(array.shape, array.dtype, value))
            before[name] = value

    def _assigned(
        self, names: Mapping[str, Any], shape: tuple[int, ...], value: Value, named: Value
    ) -> None:
        """The pieces that were assigned last, where they are this value, by its name."""
        own = [a for a in axes_of_shape(shape) if a.extent > 1]
        for array in names.values():
            for piece in array.storage.pieces[-1:] if isinstance(array, TracedArray) else ():
                other = [a for a in axes_of_shape(piece.counts) if a.extent > 1]
                if [a.extent for a in own] == [a.extent for a in other]:
                    moved = {a: index_of(b) for a, b in zip(own, other, strict=True)}
                    if self.trace.values.substitute(value, moved) == piece.value:
                        piece.value = self.trace.values.substitute(named, moved)

    def _is_known(self, array: Any) -> bool:
        """Whether something is an array that reading leaves as it is: pieces stay apart meanwhile."""
        return isinstance(array, TracedArray) and (not array.storage.pieces or self._is_held(array))

    def _is_held(self, array: TracedArray) -> bool:
        """Whether an array is all that a storage holds, or all that was assigned to it last."""
        storage = array.storage
        if not storage.pieces:
            return set(array.indices) == set(identity(storage.shape))
        ends = [(index.constant, index.bounds[1]) for index in array.indices]
        region = zip(*storage.pieces[-1].region, strict=True)
        return ends == [(start, start + step * (count - 1)) for start, step, count in region]

    def _named(
        self, line: int, old: Value | None, value: Value, shape: tuple[int, ...], dtype: np.dtype
    ) -> Value:
        chain = self._chain(old, shape) or self._begun(line, old, shape, dtype)
        chain.values.append(value)
        # Of so many, what has no form by now gets none later.
        if len(chain.values) == MOST_UNROLLED + 1 and self._form(chain) is None:
            raise NotTraced(NO_FORM, self.trace.path, chain.line)
        return self._element(chain, Index(len(chain.values)))

    def _chain(self, value: Value | None, shape: tuple[int, ...]) -> _Chain | None:
        """The chain that a value is the last of."""
        chain = self.chains.get(value.array) if isinstance(value, Element) else None
        if chain is None or not isinstance(value, Element) or chain.shape != shape:
            return None
        return chain if value == self._element(chain, Index(len(chain.values))) else None

    def _begun(
        self, line: int, initial: Value | None, shape: tuple[int, ...], dtype: np.dtype
    ) -> _Chain:
        name, number = f"carried {len(self.chains)}", FIRST_CARRIED + len(self.chains)
        chain = self.chains[name] = _Chain(name, number, line, shape, dtype, initial)
        return chain

    def _element(self, chain: _Chain, block: Index) -> Value:
        """What the variable holds after so many iterations, over d0, d1, ..."""
        address = block * SPAN + SPAN // 2 + element_number(identity(chain.shape), chain.shape)
        return self.trace.values.same(Element(chain.name, chain.number, chain.dtype.name, address))

    # What the names stand for.

    def resolved(self, value: Value) -> Value:
        """The value without what was named."""
        return rewritten(self.trace.values, value, self._rule)

    def _rule(self, part: Value) -> Value:
        if isinstance(part, Element) and part.array in self.chains:
            key = part.array, part.address
            if key not in self._resolved:
                self._resolved[key] = self._closed(self.chains[part.array], part.address)
            return self._resolved[key]
        if isinstance(part, Fold):  # of what may depend on fewer axes by now
            return fold(self.trace.values, part.combiner, part.axes, part.body)
        return part

    def _at(self, chain: _Chain, value: Value, local: Index, **more: Any) -> Value:
        """A value over d0, d1, ... at a row-major place."""
        axes = dict(zip(axes_of_shape(chain.shape), digits(local, chain.shape), strict=True))
        return self.trace.values.substitute(value, axes)

    def _closed(self, chain: _Chain, address: Index) -> Value:
        values = self.trace.values
        block = address // SPAN
        local = address - block * SPAN - SPAN // 2
        form = chain.form = chain.form or self._form(chain)
        low, high = block.bounds
        if form is None:
            if high - low > MOST_UNROLLED:
                raise NotTraced(NO_FORM, self.trace.path, chain.line)
            if low != high:
                chosen = self._closed(chain, address + (Index(high) - block) * SPAN)
                for count in range(low, high):
                    one = self._closed(chain, address + (Index(count) - block) * SPAN)
                    chosen = values.where([block - count, block * -1 + count], one, chosen)
                return chosen
            if low == 0:
                return self.resolved(self._at(chain, self._initial(chain), local))
            if len(chain.values) > MOST_UNROLLED:
                raise NotTraced(NO_FORM, self.trace.path, chain.line)
            return self._composed(chain, low, local)
        if high == 0:
            return self.resolved(self._at(chain, self._initial(chain), local))
        if low < 1:
            later = self._made(chain, form, block, local)
            first = self.resolved(self._at(chain, self._initial(chain), local))
            return values.where([block - 1], later, first)
        return self._made(chain, form, block, local)

    def _composed(self, chain: _Chain, count: int, local: Index) -> Value:
        """What a loop without a form leaves after so many iterations: an array of its own where it
        is made of several elements of the one before, for those would be computed again each time."""
        value = chain.values[count - 1]
        own = [p for p in every(value) if isinstance(p, Element) and p.array == chain.name]
        if len(own) < 2 or count == len(chain.values):
            return self.resolved(self._at(chain, value, local))
        name = f"step{chain.number - FIRST_CARRIED}_{count}"
        if name not in self.stages:
            resolved = self.resolved(value)
            number = chain.number + (len(self.stages) + 1) * FIRST_CARRIED
            self.stages[name] = _Stage(name, number, chain.shape, chain.dtype, resolved)
        stage = self.stages[name]
        element = Element(name, stage.number, chain.dtype.name, local)
        return self.trace.values.same(element)

    def _initial(self, chain: _Chain) -> Value:
        if chain.initial is None:
            raise NotTraced(
                "a variable of this loop has no value before it", self.trace.path, chain.line
            )
        return chain.initial

    def _made(self, chain: _Chain, form: _Form, block: Index, local: Index) -> Value:
        """What iteration `block` (from 1) has left."""
        values = self.trace.values
        if form.kind == "each":
            there = self._at(chain, form.term, local)
            return self.resolved(values.substitute(there, {form.axis: block - 1}))
        initial = self.resolved(self._at(chain, self._initial(chain), local))
        factor, term = (self._at(chain, part, local) for part in (form.factor, form.term))
        taken = {*values.axes(factor), *values.axes(term)} - {form.axis}
        taken |= {*values.axes(initial), *block.axes, *local.axes}
        whole_loop = len(chain.values)
        constant = not block.terms
        count = fresh_axis(block.constant if constant else whole_loop, taken)
        moved = {form.axis: index_of(count)}
        factor, term = (self.resolved(values.substitute(p, moved)) for p in (factor, term))
        one = factor == Constant(1.0)
        if constant and one:
            combiner = "add" if form.kind == "linear" else form.kind
            total = fold(values, combiner, [count], term)
            return apply(values, combiner, [initial, total])
        combine = "add" if form.kind == "linear" else form.kind
        at = Index(count.extent - 1) if constant else block - 1
        found = ScanElement("multiply", factor, combine, term, initial, count, at)
        return values.same(found)

    def _form(self, chain: _Chain) -> _Form | None:
        """What all iterations have in common; None for loops that are composed one by one."""
        values = self.trace.values
        if len(chain.values) < LEAST_ITERATIONS:
            return None
        found = progression(values, chain.values[1:])
        if found is None:
            return None
        later, template = found
        axis = Axis("iteration", len(chain.values))  # no reduction has that name
        template = values.substitute(template, {later: index_of(axis) - 1})
        own = self._element(chain, index_of(axis))
        if any(
            isinstance(p, Element) and p.array == chain.name and p != own for p in every(template)
        ):
            return None
        first = values.substitute(template, {axis: Index()})
        if first != chain.values[0]:
            return None
        return _linear(values, template, own, axis)


def _linear(values: Values, value: Value, own: Value, axis: Axis) -> _Form | None:
    """The form of what an iteration makes of `own`, the value before."""
    one = values.number(1)
    if own not in every(value):
        return _Form("each", axis, value, one)
    if isinstance(value, Application) and value.function in ("maximum", "minimum"):
        rest = [part for part in value.arguments if part != own]
        if len(rest) == 1 and own not in every(rest[0]):
            return _Form(value.function, axis, rest[0], one)
        return None
    terms = list(value.terms) if isinstance(value, Sum) else [(value, 1.0)]
    factors: list[tuple[Value, float]] = []
    rest_terms: list[tuple[Value, float]] = []
    for term, coefficient in terms:
        if own not in every(term):
            rest_terms.append((term, coefficient))
        elif term == own:
            factors.append((one, coefficient))
        elif isinstance(term, Product) and (own, 1.0) in term.factors:
            others = [(f, p) for f, p in term.factors if f != own]
            if any(own in every(f) for f, _ in others):
                return None
            factors.append((values.product(others, term.coefficient), coefficient))
        else:
            return None
    constant = value.constant if isinstance(value, Sum) else 0.0
    return _Form("linear", axis, values.sum(rest_terms, constant), values.sum(factors))


# Outputs.


def _refuse_empty(what: str, shape: Sequence[int], path: str) -> None:
    if 0 in shape:
        raise NotTraced(f"{what} of shape {tuple(shape)} has no elements", path)


def _algorithm(
    trace: Trace, loops: _Loops, kernel: _Kernel, outputs: Sequence[Any], name: str
) -> Algorithm:
    values = trace.values
    defined: list[DefinedOutput] = []
    taken = set(kernel.names)
    for number, output in enumerate(outputs):
        array = trace.traced(output)
        if not array.shape:
            array = array.reshape(1)
        _refuse_empty(f"output {number}", array.shape, trace.path)
        label = "out" if len(outputs) == 1 else f"out{number}"
        while label in taken:
            label += "_"
        taken.add(label)
        dtype = TARGET_FORMATS.get(array.dtype.name, array.dtype.name)

        def made(
            label: str, shape: Sequence[int], value: Value, updates: str = "", row: int = 0,
            dtype: str = dtype, given: tuple[int, ...] = array.shape,
        ) -> DefinedOutput:  # fmt: skip
            axes = axes_of_shape(shape)
            own = tuple(Axis(f"o{n}", axis.extent) for n, axis in enumerate(axes))
            value = values.substitute(
                value, {a: index_of(b) for a, b in zip(axes, own, strict=True)}
            )
            value = whole(values, loops.resolved(value))
            joint, value = joined(values, own, value)
            joint = tuple(axis for axis in joint if axis.extent > 1) or joint[:1]
            return DefinedOutput(label, joint, whole(values, value), dtype, given, updates, row)

        storage, updates = array.storage, array.storage.untouched
        if storage.scatter is None or not array.is_whole:
            defined.append(made(label, array.shape, array.value))
            continue
        if not updates and storage.value is not UNDEFINED:
            updates = f"{label}_before"
            defined.append(made(updates, storage.shape, storage.value))
        scatter = storage.scatter
        defined.append(made(label, scatter.shape, scatter.put, updates, scatter.row))
    stages = [
        DefinedOutput(
            stage.name, tuple(a for a in axes_of_shape(stage.shape) if a.extent > 1),
            whole(values, stage.value), stage.dtype.name, stage.shape,
        )
        for stage in loops.stages.values()
    ]  # fmt: skip
    try:
        return algorithm_of(values, name, kernel.arrays, defined, stages)
    except UndefinedOutput:
        raise NotTraced(
            "forward returns elements that nothing was assigned to", trace.path
        ) from None
