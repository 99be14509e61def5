"""Which instructions compute the elementwise values of a phase.

An activation takes a scale and a bias on the way, a tensor_scalar two operations with numbers, a
scalar_tensor_tensor one with a number and one with a tile; sums of what an activation makes come
with it. Whatever is used by one instruction alone and fits into it is no instruction of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from accelopt.algorithm.functions import ROUNDINGS
from accelopt.algorithm.index import Axis
from accelopt.hardware import Hardware
from accelopt.kernels.nki.lift.emission.graph import GraphValue
from accelopt.kernels.nki.lift.emission.nest import Form

ACTIVATIONS = frozenset(
    "exp log sqrt rsqrt square reciprocal abs sign relu sigmoid silu silu_dx tanh gelu "
    "gelu_apprx_tanh gelu_apprx_sigmoid gelu_dx erf erf_dx sin arctan softplus mish".split()
)
"""What the Scalar engine computes of one operand (nki.isa.activation)."""

ARITHMETIC = frozenset(
    "add subtract multiply divide maximum minimum power mod fmod less less_equal greater "
    "greater_equal equal not_equal".split()
)
"""What the Vector engine computes of two operands."""

BEFORE_TILE = ARITHMETIC - {"divide", "power", "mod", "fmod"}
"""What a scalar_tensor_tensor computes with its number before it takes the second tile."""

COMMUTES = frozenset({"add", "multiply", "maximum", "minimum", "equal", "not_equal"})


@dataclass
class Selection:
    """One instruction that gives `value`: `opcode` with its functions, the tile it works on, a
    second tile, and the numbers (constants, or one a partition) that go with its functions. With
    `total`, it also gives the sum of its result along the free axis."""

    value: GraphValue
    opcode: str
    functions: tuple[str, ...]
    data: GraphValue
    other: GraphValue | None = None
    numbers: tuple[GraphValue | None, ...] = ()
    reversed: bool = False
    total: GraphValue | None = None

    @property
    def format_option(self) -> str:
        """The argument that says the format of the result, where it does not go without saying."""
        formats = {tile.dtype for tile in (self.value, *self.tiles)}
        return "" if formats == {"float32"} else f", dtype=nl.{self.value.dtype}"

    @property
    def tiles(self) -> tuple[GraphValue, ...]:
        """The operands that are tiles."""
        return (self.data,) if self.other is None else (self.data, self.other)


class NoEngine(Exception):
    """A function that no engine has."""


def select(
    values: Sequence[GraphValue],
    is_number: Callable[[GraphValue], bool],
    single: Collection[GraphValue],
    times: Callable[[GraphValue, float], GraphValue],
    inner: Collection[Axis] = (),
) -> list[Selection]:
    """The steps of a phase, in order. `single` are the values that one other value of the phase
    alone reads, `inner` the axes that are summed over inside the phase; `times` makes a number times a constant."""
    chooser = _Chooser(is_number, set(single), times)
    steps: list[Selection] = []
    for value in reversed(values):
        if value.kind in ("apply", "where") and value not in chooser.taken:
            steps.append(chooser.step(value))
    steps.reverse()
    made = {step.value: step for step in steps}
    order = {value: n for n, value in enumerate(values)}
    for value in values:
        if value.kind == "scan":
            factor, term, initial = value.arguments
            steps.append(
                Selection(value, "scan", ("multiply", "add"), factor, term, numbers=(initial,))
            )
        if value.kind != "reduce":
            continue
        if value.reduced[0] in inner:
            steps.append(Selection(value, "accumulate", (value.function,), value.arguments[0]))
            continue
        source = made.get(value.arguments[0])
        if (
            source
            and value.function == "add"
            and source.opcode == "activation"
            and not source.total
        ):
            source.total = value
        else:
            steps.append(Selection(value, "reduce", (value.function,), value.arguments[0]))
    steps.sort(key=lambda step: order[step.value])
    return steps


class _Chooser:
    def __init__(
        self,
        is_number: Callable[[GraphValue], bool],
        single: set[GraphValue],
        times: Callable[[GraphValue, float], GraphValue],
    ) -> None:
        self.is_number = is_number
        self.single = single
        self.times = times
        self.taken: set[GraphValue] = set()

    def step(self, value: GraphValue) -> Selection:
        """The instruction for one value, with what it takes along."""
        function, arguments = value.function, value.arguments
        if value.kind == "where":
            return Selection(value, "select", (), arguments[0], numbers=arguments[1:])
        if function in ROUNDINGS:
            (exact,) = arguments
            if exact not in self.single or exact.kind == "input":
                return Selection(value, "copy", (), exact)
            self.taken.add(exact)
            step = self.step(exact)
            step.value = value  # engines write any format
            return step
        if function in ACTIVATIONS and len(arguments) == 1:
            return self._activation(value)
        if function in ARITHMETIC and len(arguments) == 2:
            numbers = [self.is_number(argument) for argument in arguments]
            if numbers[0] != numbers[1]:
                return self._with_number(value, arguments, numbers[0])
            return self._with_tile(value, arguments)
        raise NoEngine(f"no engine computes {function} of {len(arguments)} operands")

    def _inside(
        self, value: GraphValue, functions: Collection[str]
    ) -> tuple[GraphValue, GraphValue] | None:
        """Tile and number of a value that only this instruction reads and that is one function of
        them."""
        if value not in self.single or value.function not in functions:
            return None
        if len(value.arguments) != 2:
            return None
        left, right = value.arguments
        if self.is_number(right) and not self.is_number(left):
            return left, right
        if value.function in COMMUTES and self.is_number(left) and not self.is_number(right):
            return right, left
        return None

    def _activation(self, value: GraphValue) -> Selection:
        data = value.arguments[0]
        bias: GraphValue | None = None
        scale: GraphValue | None = None
        factor = 1.0
        scaled = self._inside(data, ("multiply",))
        if scaled and scaled[1].kind == "constant":  # f(scale * (x + shift))
            self.taken.add(data)
            data, scale = scaled
            factor = scale.constant
        shifted = self._inside(data, ("add", "subtract"))
        if shifted and value.function != "reciprocal":
            number = shifted[1]
            if data.function == "subtract":
                factor = -factor
            if factor != 1.0:
                number = self.times(number, factor)
            self.taken.add(data)
            data, bias = shifted[0], number
        scaled = self._inside(data, ("multiply",))
        if scaled and scale is None:
            self.taken.add(data)
            data, scale = scaled
        return Selection(value, "activation", (value.function,), data, numbers=(scale, bias))

    def _with_number(
        self, value: GraphValue, arguments: tuple[GraphValue, ...], number_first: bool
    ) -> Selection:
        data, number = arguments if not number_first else arguments[::-1]
        backwards = number_first and value.function not in COMMUTES
        inside = None if backwards else self._inside(data, ARITHMETIC)
        if inside:
            self.taken.add(data)
            return Selection(
                value, "tensor_scalar", (data.function, value.function), inside[0],
                numbers=(inside[1], number),
            )  # fmt: skip
        return Selection(
            value, "tensor_scalar", (value.function,), data, numbers=(number,), reversed=backwards
        )

    def _with_tile(self, value: GraphValue, arguments: tuple[GraphValue, ...]) -> Selection:
        left, right = arguments
        for first, second in ((left, right), (right, left)):
            if first is right and value.function not in COMMUTES:
                continue
            inside = self._inside(first, BEFORE_TILE)
            if inside and first is not second:
                self.taken.add(first)
                return Selection(
                    value, "scalar_tensor_tensor", (first.function, value.function), inside[0],
                    second, (inside[1],),
                )  # fmt: skip
        return Selection(value, "tensor_tensor", (value.function,), left, right)


Text = Callable[[GraphValue], str]


def forms(
    step: Selection, target: str, text: Text, width: int, psum: bool, spec: Hardware
) -> tuple[Form, ...]:
    """The step as text for every engine that can carry it out. `target` is what it assigns to,
    `width` its elements a partition, `psum` True when an operand lies in PSUM."""

    def vector(cycles: float) -> float:
        return (cycles + spec.access_cycles) / spec.vector_ghz

    def scalar(cycles: float) -> float:
        return (cycles + spec.access_cycles) / spec.scalar_ghz

    two = width if psum else spec.two_input_cycles_per_element * width
    data = text(step.data)
    numbers = [None if number is None else text(number) for number in step.numbers]
    functions = [f"nl.{name}" for name in step.functions]
    form = step.format_option
    if step.opcode == "copy":
        return copy_forms(target, data, width, spec, form)
    if step.opcode == "activation":
        return _activation(step, target, data, numbers, text, scalar(width), vector, width, spec)
    if step.opcode == "tensor_scalar":
        found = [_tensor_scalar(step, target, data, numbers, vector(width))]
        found += _on_scalar_engine(step, target, data, numbers, scalar(width))
        return tuple(found)
    if step.opcode == "scalar_tensor_tensor":
        assert step.other is not None
        call = (
            f"{target} = nisa.scalar_tensor_tensor(data={data}, op0={functions[0]}, "
            f"operand0={numbers[0]}, op1={functions[1]}, operand1={text(step.other)}{form})"
        )
        return (Form(call, "vector", vector(spec.two_input_cycles_per_element * width)),)
    if step.opcode == "scan":
        assert step.other is not None
        call = (
            f"{target} = nisa.tensor_tensor_scan({data}, {text(step.other)}, "
            f"initial={numbers[0]}, op0={functions[0]}, op1={functions[1]}{form})"
        )
        return (Form(call, "vector", vector(spec.two_input_cycles_per_element * width)),)
    if step.opcode == "tensor_tensor":
        assert step.other is not None
        other = text(step.other)
        call = f"{target} = nisa.tensor_tensor({data}, {other}, op={functions[0]}{form})"
        return (Form(call, "vector", vector(two)),)
    if step.opcode == "reduce":
        name = {"maximum": "nl.max", "minimum": "nl.min"}.get(step.functions[0], functions[0])
        call = f"{target} = nisa.tensor_reduce({name}, data={data}, axis=[1], keepdims=True{form})"
        return (Form(call, "vector", vector(width)),)
    raise NoEngine(step.opcode)


def _activation(
    step: Selection,
    target: str,
    data: str,
    numbers: list[str | None],
    text: Text,
    scalar_ns: float,
    vector: Callable[[float], float],
    width: int,
    spec: Hardware,
) -> tuple[Form, ...]:
    function = step.functions[0]
    scale, bias = numbers
    options = "".join(
        f", {name}={value}" for name, value in (("bias", bias), ("scale", scale)) if value
    )
    if step.total is not None:
        call = (
            f"{target} = nisa.activation_reduce(op=nl.{function}, data={data}, "
            f"reduce_op=nl.add, reduce_res={text(step.total)}{options}{step.format_option})"
        )
        extra = spec.accumulator_read_cycles / spec.scalar_ghz
        return (Form(call, "scalar", scalar_ns + extra),)
    options += step.format_option
    call = f"{target} = nisa.activation(op=nl.{function}, data={data}{options})"
    found = [Form(call, "scalar", scalar_ns)]
    if function == "reciprocal" and options == step.format_option:
        cycles = spec.reciprocal_cycles_per_element * width
        call = f"{target} = nisa.reciprocal({data}{options})"
        found.insert(0, Form(call, "vector", vector(cycles)))
    return tuple(found)


def _tensor_scalar(
    step: Selection, target: str, data: str, numbers: list[str | None], ns: float
) -> Form:
    parts = [f"op0=nl.{step.functions[0]}, operand0={numbers[0]}"]
    if step.reversed:
        parts.append("reverse0=True")
    if len(step.functions) > 1:
        parts.append(f"op1=nl.{step.functions[1]}, operand1={numbers[1]}")
    call = (
        f"{target} = nisa.tensor_scalar(data={data}, {', '.join(parts)}{step.format_option}, "
        "engine=nisa.vector_engine)"
    )
    return Form(call, "vector", ns)


def _on_scalar_engine(
    step: Selection, target: str, data: str, numbers: list[str | None], ns: float
) -> list[Form]:
    """`x * scale + bias` as an activation: where the bias is a tile, or nothing."""
    scale = bias = None
    if step.functions == ("multiply",):
        scale = numbers[0]
    elif step.functions == ("multiply", "add"):
        scale, bias = numbers
    elif step.functions == ("add",):
        bias = numbers[0]
    else:
        return []
    constant = step.numbers[-1] is not None and step.numbers[-1].kind == "constant"
    if bias and constant:
        return []
    options = "".join(
        f", {name}={value}" for name, value in (("bias", bias), ("scale", scale)) if value
    )
    options += step.format_option
    call = f"{target} = nisa.activation(op=nl.copy, data={data}{options})"
    return [Form(call, "scalar", ns)]


def copy_forms(
    target: str, data: str, width: int, spec: Hardware, form: str = ""
) -> tuple[Form, ...]:
    """A copy, by either engine."""
    ns = width + spec.access_cycles
    return tuple(
        Form(
            f"{target} = nisa.tensor_copy({data}{form}, engine=nisa.{name}_engine)", name, ns / ghz
        )
        for name, ghz in (("scalar", spec.scalar_ghz), ("vector", spec.vector_ghz))
    )
