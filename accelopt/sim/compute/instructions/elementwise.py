"""Elementwise instructions: one function of tiles, computed in float32, rounded once at the end."""

from __future__ import annotations

import numpy as np

from accelopt.sim import dtypes
from accelopt.sim.access import Access
from accelopt.sim.compute.instructions import arithmetic
from accelopt.sim.compute.instructions.arithmetic import Unary
from accelopt.sim.compute.instructions.reductions import and_registers
from accelopt.sim.compute.tiles.elements import column
from accelopt.sim.compute.tiles.operands import Closure, LaneSite, ReadClosure
from accelopt.sim.operators import BINARY, BITWISE
from accelopt.sim.program import Engine

_GPSIMD_INTEGERS = frozenset(("add", "subtract", "multiply"))


def _fitted(site: LaneSite, access: Access) -> Access:
    """A (P, 1) operand with as many axes as the result."""
    return column(access, len(site.result.shape))


def _touches(site: LaneSite, *names: str) -> bool:
    """True when an input shares its tensor with the result."""
    tensor = site.result.tensor
    return any(
        n in site.instruction.inputs and site.instruction.inputs[n].tensor is tensor for n in names
    )


def activation(site: LaneSite) -> Closure:
    """result = op(data * scale + bias), and a reduction of it into the engine's registers."""
    name = site.text("op")
    data = site.values(_fitted(site, site.instruction.inputs["data"]))
    function = arithmetic.unary(name)
    scale, bias = _scale(site), _bias(site)
    if name == "invert":
        return _bitwise_unary(site)

    def calculate(out: np.ndarray) -> None:
        values = data()
        if scale is not None:
            values = np.multiply(values, scale(), out)
        if bias is not None:
            values = np.add(values, bias(), out)
        function(values, out)

    alone = scale is None and bias is None
    calculated = (lambda out: function(data(), out)) if alone else calculate
    return and_registers(site, "scalar", calculated, alias=_touches(site, "bias", "scale"))


def _scale(site: LaneSite) -> ReadClosure | None:
    if site.input("scale") is None and site.attribute("scale", 1.0) == 1.0:
        return None
    return site.operand("scale", len(site.result.shape))


def _bias(site: LaneSite) -> ReadClosure | None:
    access = site.input("bias")
    if access is None and not site.attribute("bias"):
        return None
    return site.operand("bias", len(site.result.shape))


def _bitwise_unary(site: LaneSite) -> Closure:
    held = dtypes.stored(site.result.dtype)
    read = site.view(site.instruction.inputs["data"])
    destination = site.destination(site.result, held)
    return destination.computed(lambda out: np.invert(dtypes.convert(read(), held), out))


def reciprocal(site: LaneSite) -> Closure:
    """result = 1 / data."""
    data = site.values(_fitted(site, site.instruction.inputs["data"]))
    return site.computed(lambda out: np.reciprocal(data(), out))


def tensor_scalar(site: LaneSite) -> Closure:
    """result = op1(op0(data, operand0), operand1), operands numbers or (P, 1) tiles."""
    names = [site.text("op0"), site.text("op1")]
    if names[0] in BITWISE:
        return _bitwise_chain(site, names)
    rank = len(site.result.shape)
    data = site.values(_fitted(site, site.instruction.inputs["data"]))
    first = _chained(site, 0, rank)
    second = _chained(site, 1, rank) if names[1] else None

    def calculate(out: np.ndarray) -> None:
        first(data(), out)
        if second is not None:
            second(out, out)

    return and_registers(site, "vector", calculate, alias=_touches(site, "operand1"))


def _chained(site: LaneSite, number: int, rank: int) -> Unary:
    """The op `op<number>` with its operand: f(values, out)."""
    name = site.text(f"op{number}")
    if name not in BINARY:  # rsqrt, abs and other ops of one argument
        return arithmetic.unary(name)
    operand = site.operand(f"operand{number}", rank)
    return _with_operand(name, operand, bool(site.attribute(f"reverse{number}")))


def _with_operand(name: str, operand: ReadClosure, reverse: bool) -> Unary:
    function = arithmetic.binary(name)
    if reverse:
        return lambda values, out: function(operand(), values, out)
    return lambda values, out: function(values, operand(), out)


def _bitwise_chain(site: LaneSite, names: list[str]) -> Closure:
    """Bit operations act on the data's integers as they are."""
    data = site.instruction.inputs["data"]
    held = dtypes.stored(data.dtype)
    read = site.view(data)
    operands = [_integers(site, f"operand{n}", held) for n in (0, 1)]
    reverses = [bool(site.attribute(f"reverse{n}")) for n in (0, 1)]

    def calculate(out: np.ndarray) -> None:
        values = read()
        for name, operand, reverse in zip(names, operands, reverses, strict=True):
            if name:
                pair = (operand(), values) if reverse else (values, operand())
                arithmetic.binary(name)(np.asarray(pair[0]), np.asarray(pair[1]), out)
                values = out

    return site.destination(site.result, held, alias=True).computed(calculate)


def _integers(site: LaneSite, name: str, dtype: np.dtype) -> ReadClosure:
    access = site.input(name)
    if access is None:
        value = site.attribute(name, 0)
        assert isinstance(value, (int, float))
        constant = np.asarray(int(value)).astype(dtype)
        return lambda: constant
    read = site.view(column(access, len(site.result.shape)))
    return lambda: read().astype(dtype)


def tensor_tensor(site: LaneSite) -> Closure:
    """result = op(data1, data2); whole numbers stay so for bit operations and for 32-bit
    arithmetic, which runs on GpSimd, and on registers."""
    name = site.text("op")
    accesses = [_fitted(site, site.instruction.inputs[n]) for n in ("data1", "data2")]
    function = arithmetic.binary(name)
    integer = _integer_math(site, name, [a.dtype for a in accesses])
    if integer is not None:
        one, other = (site.view(access) for access in accesses)
        return site.destination(site.result, integer).computed(
            lambda out: function(one().astype(integer), other().astype(integer), out)
        )
    left, right = (site.values(access) for access in accesses)
    return site.computed(lambda out: function(left(), right(), out))


def _integer_math(site: LaneSite, name: str, formats: list[np.dtype]) -> np.dtype | None:
    """The integer format that an op computes in; None for float32."""
    if not all(dtypes.is_integer(d) for d in formats):
        return None
    wide = dtypes.promote(*formats)
    if name in BITWISE:
        return wide if dtypes.is_integer(wide) else dtypes.UINT32
    if site.instruction.engine is Engine.SYNC:
        return wide
    free = site.instruction.engine in (Engine.GPSIMD, Engine.UNASSIGNED)
    whole = wide in (dtypes.INT32, dtypes.UINT32)
    return wide if name in _GPSIMD_INTEGERS and free and whole else None


def scalar_tensor_tensor(site: LaneSite) -> Closure:
    """result = op1(op0(data, operand0), operand1), operand1 a tile like data."""
    rank = len(site.result.shape)
    data = site.values(_fitted(site, site.instruction.inputs["data"]))
    other = site.values(_fitted(site, site.instruction.inputs["operand1"]))
    first = _chained(site, 0, rank)
    second = _with_operand(site.text("op1"), other, bool(site.attribute("reverse1")))

    def calculate(out: np.ndarray) -> None:
        first(data(), out)
        second(out, out)

    return site.computed(calculate, alias=_touches(site, "operand1"))


def select(site: LaneSite) -> Closure:
    """result = where(predicate, on_true, on_false), each a tile or a number."""
    rank = len(site.result.shape)
    predicate = site.view(_fitted(site, site.instruction.inputs["predicate"]))
    true, false = site.operand("on_true", rank), site.operand("on_false", rank)

    def calculate(out: np.ndarray) -> None:
        np.copyto(out, false())
        np.copyto(out, true(), where=predicate() != 0)

    return site.computed(calculate, alias=_touches(site, "on_true", "predicate"))


def dropout(site: LaneSite) -> Closure:
    """result = data, or zero with the given probability."""
    data = site.values(site.instruction.inputs["data"])
    probability = site.operand("probability", len(site.result.shape))
    lane = site.lane

    def calculate(out: np.ndarray) -> None:
        values = data()
        kept = lane.random.random(values.shape, dtype=np.float32) >= probability()
        np.multiply(values, kept, out)

    return site.computed(calculate)


def random(site: LaneSite) -> Closure:
    """result = uniform in [0, 1)."""
    lane = site.lane
    return site.computed(
        lambda out: np.copyto(out, lane.random.random(out.shape, dtype=np.float32))
    )
