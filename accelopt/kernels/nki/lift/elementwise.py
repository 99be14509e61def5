"""The meaning of elementwise instructions, for one element."""

from __future__ import annotations

from accelopt.algorithm.bit_operations import of_bits
from accelopt.algorithm.functions import FUNCTIONS
from accelopt.algorithm.index import Index
from accelopt.algorithm.ir import Constant, Position
from accelopt.algorithm.normal_forms import apply
from accelopt.algorithm.value_nodes import Product, Sum, Value
from accelopt.kernels.nki.lift.instruction_element import WriteSite
from accelopt.sim.operators import BITWISE, COMPARISONS


def activation(site: WriteSite) -> Value:
    """`op(data * scale + bias)`."""
    values = site.reaching.values
    value = site.operand("data")
    if "scale" in site.instruction.inputs or "scale" in site.instruction.attributes:
        value = values.product([(value, 1.0), (site.operand("scale"), 1.0)])
    if "bias" in site.instruction.inputs or site.instruction.attributes.get("bias"):
        value = values.sum([(value, 1.0), (site.operand("bias"), 1.0)])
    return applied(site, site.text("op"), [value])


def applied(site: WriteSite, function: str, arguments: list[Value]) -> Value:
    """A function of values. Raises NotLifted for what real numbers do not have."""
    if function in COMPARISONS:
        return _comparison(site, function, arguments)
    known = ("copy", "negative", "relu", "square", "reciprocal", "sqrt", "rsqrt")
    if (digits := _digits(site, function, arguments)) is not None:
        return digits
    if function not in FUNCTIONS and function not in known:
        raise site.refusal(f"{function} acts on bits, which real numbers do not have")
    return apply(site.reaching.values, function, arguments)


def _digits(site: WriteSite, function: str, arguments: list[Value]) -> Value | None:
    """What a bit operation is in arithmetic on whole numbers; None where it has no such form."""
    accesses = (site.instruction.inputs.get(name) for name in ("data", "data1", "data2"))
    formats = {access.dtype for access in accesses if access is not None}
    if function not in {*BITWISE, "invert"} or len(formats) != 1:
        return None
    return of_bits(site.reaching.values, function, arguments, formats.pop())


def _comparison(site: WriteSite, function: str, arguments: list[Value]) -> Value:
    """A comparison; of positions it is a condition on axes."""
    values = site.reaching.values
    difference = _as_index(values.sum([(arguments[0], 1.0), (arguments[1], -1.0)]))
    if difference is None:
        return apply(values, function, arguments)
    one, zero = values.number(1), values.number(0)
    if function in ("equal", "not_equal"):
        pair = (one, zero) if function == "equal" else (zero, one)
        return values.where([difference, difference * -1], *pair)
    condition = {
        "greater_equal": difference,
        "greater": difference - 1,
        "less_equal": difference * -1,
        "less": difference * -1 - 1,
    }[function]
    return values.where([condition], one, zero)


def _as_index(value: Value) -> Index | None:
    """A value as an index, where it is one."""
    if isinstance(value, Position):
        return value.index
    if isinstance(value, Constant) and float(value.value).is_integer():
        return Index(int(value.value))
    if isinstance(value, Product):
        inner = _as_index(value.factors[0][0])
        if inner is None or len(value.factors) > 1 or value.factors[0][1] != 1:
            return None
        whole = float(value.coefficient).is_integer()
        return inner * int(value.coefficient) if whole else None
    if isinstance(value, Sum) and float(value.constant).is_integer():
        result = Index(int(value.constant))
        for term, coefficient in value.terms:
            inner = _as_index(term)
            if inner is None or not coefficient.is_integer():
                return None
            result = result + inner * int(coefficient)
        return result
    return None


def tensor_scalar(site: WriteSite) -> Value:
    """`op1(op0(data, operand0), operand1)`."""
    value = site.operand("data")
    for number in (0, 1):
        name = site.text(f"op{number}")
        if name:
            value = _chained(site, number, name, value)
    return value


_UNARY = frozenset(
    "rsqrt sqrt abs exp log square reciprocal negative sign relu sigmoid silu tanh gelu erf copy "
    "floor ceil trunc logical_not".split()
)


def _chained(site: WriteSite, number: int, name: str, value: Value) -> Value:
    if name in _UNARY:
        return applied(site, name, [value])
    arguments = [value, site.operand(f"operand{number}")]
    if site.instruction.attributes.get(f"reverse{number}"):
        arguments.reverse()
    return applied(site, name, arguments)


def tensor_tensor(site: WriteSite) -> Value:
    """`op(data1, data2)`."""
    return applied(site, site.text("op"), [site.operand("data1"), site.operand("data2")])


def scalar_tensor_tensor(site: WriteSite) -> Value:
    """`op1(op0(data, operand0), operand1)`, the second operand a tile."""
    first = _chained(site, 0, site.text("op0"), site.operand("data"))
    return _chained(site, 1, site.text("op1"), first)


def reciprocal(site: WriteSite) -> Value:
    """`1 / data`."""
    return applied(site, "reciprocal", [site.operand("data")])


def select(site: WriteSite) -> Value:
    """One of two operands by a predicate."""
    names = ("predicate", "on_true", "on_false")
    return applied(site, "select", [site.operand(name) for name in names])
