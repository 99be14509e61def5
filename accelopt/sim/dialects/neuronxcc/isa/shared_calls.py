"""A call of `nisa` that both dialects have is one function: its first parameter is the result, which does in
the dialect's own way what the dialects do differently.

`neuronxcc.nki` returns a new tile, in a format and under a mask that may be given, and repeats operands; `nki`
takes its destination first (`nki/isa/destinations.py`).
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from inspect import Parameter, Signature
from typing import Any

from accelopt.sim.dialects.neuronxcc import assignment, builder
from accelopt.sim.dialects.neuronxcc.isa import enums
from accelopt.sim.dialects.neuronxcc.isa.checks import ALU_UNARY
from accelopt.sim.dialects.neuronxcc.operation_names import ACTIVATIONS, op_name
from accelopt.sim.dialects.neuronxcc.tensor import TensorView
from accelopt.sim.isa.opcode import Opcode
from accelopt.sim.program import AttributeValue, Engine
from accelopt.sim.rules import operands


class Result:
    """What a call of `neuronxcc.nki` writes: `dst` where it names one, otherwise a new tile."""

    in_nki = False
    commands: Any = enums.reduce_cmd
    defaults: Mapping[str, Any] = {"reduce_cmd": enums.reduce_cmd.idle}
    activations = ACTIVATIONS
    unary_operators = ALU_UNARY
    unchecked: frozenset[str] = frozenset()
    """Calls whose operands the table of limits does not bind in this dialect."""

    def __init__(self, dst: Any = None, dtype: Any = None, mask: Any = None) -> None:
        self.dst = None if dst is None else self.written(dst, "dst")
        self.dtype = dtype
        self.mask = builder.mask_of(mask)

    @property
    def named(self) -> TensorView:
        """The destination of a call that has one in both dialects."""
        assert self.dst is not None
        return self.dst

    def written(self, value: Any, name: str) -> TensorView:
        """A tile that the call writes in place."""
        view = builder.tile(value, name)
        assignment.check_writable(view)
        return view

    def of(
        self, name: str, shape: tuple[int, ...], dtype: Any, like: TensorView | None = None
    ) -> TensorView:
        """The result in this shape, of the partitions of `like`, and in this format where none is asked for."""
        if self.dst is not None:
            return self.dst
        return builder.new_tile(shape, self.dtype or dtype)

    def alike(
        self, name: str, dtype: Any, repeats: bool = False, **tiles: TensorView
    ) -> tuple[TensorView, ...]:
        """The result and the operands in one shape; `repeats` where axes of length 1 may be."""
        views = tuple(tiles.values())
        shape = views[0].tile_shape if self.dst is None else self.dst.tile_shape
        if repeats:
            shape = assignment.common_shape(*views)
        elif self.dst is None and len({math.prod(view.tile_shape) for view in views}) > 1:
            given = {operand: view.tile_shape for operand, view in tiles.items()}
            builder.fail(operands.different_shapes(name, given))
        result = self.of(name, shape, dtype)
        return (result, *(assignment.fit(view, shape) for view in views))

    def column(self, value: Any, name: str, like: TensorView) -> Any:
        """A number, or a tile of one element for each partition of `like` as (P, 1)."""
        if value is None or builder.is_number(value):
            return value
        return builder.column(builder.tile(value, name))

    def engine(self, engine: Any, **tiles: TensorView) -> Engine | None:
        """The engine asked for; GpSimd cannot reach PSUM, in which none of these tiles may lie."""
        chosen = builder.engine_of(engine)
        if chosen is Engine.GPSIMD:
            mend = "Use nisa.vector_engine, or copy the operand to SBUF."
            builder.in_reach_of_gpsimd(mend, **tiles)
        return chosen

    def command(self, command: Any) -> str:
        """The name of what happens to the accumulation registers."""
        return str(self.commands(command).name)

    def accumulation(
        self, reduce_res: Any, command: Any, op: Any, allowed: frozenset[str]
    ) -> tuple[TensorView | None, dict[str, Any]]:
        """The tile that the accumulation registers are read into, and the attributes that say how they
        are used."""
        given = {} if command is None else {"reduce_cmd": self.command(command)}
        target = None if reduce_res is None else self.written(reduce_res, "reduce_res")
        idle = given.get("reduce_cmd") == "idle"
        if idle and target is None and (self.in_nki or op is None):
            return None, {}
        return target, {"reduce_op": op_name(op or "add", allowed), **given}

    def emit(
        self,
        opcode: Opcode,
        result: TensorView,
        inputs: Mapping[str, Any],
        attributes: dict[str, AttributeValue] | None = None,
        outputs: Mapping[str, TensorView | None] | None = None,
        engine: Engine | None = None,
    ) -> TensorView:
        """The call's instruction."""
        return builder.emit(
            opcode, result=result, inputs=inputs, attributes=attributes, outputs=outputs,
            mask=self.mask, engine=engine,
        )  # fmt: skip


@dataclass(frozen=True)
class SharedCall:
    """A function of a Result and operands. Those of the operands that it says are a TensorView are tiles, and all
    that are tiles keep the limits of the call `limits`."""

    function: Callable[..., Any]
    limits: str
    in_place: bool
    """In `neuronxcc.nki` it has a destination, too."""
    in_sbuf: bool
    """In `nki` its destination does not lie in PSUM."""

    def parameters(self, defaults: Mapping[str, Any]) -> dict[str, Parameter]:
        """Of the operands, with what a dialect has in the place of some defaults."""
        _, *own = inspect.signature(self.function, eval_str=True).parameters.values()
        return {p.name: p.replace(default=defaults.get(p.name, p.default)) for p in own}

    def surface(
        self,
        first: Sequence[Parameter],
        by_keyword: Sequence[Parameter],
        result: Callable[[dict[str, Any]], Result],
    ) -> Callable[..., Any]:
        """The call as users see it; `result` takes its own arguments out of those given."""
        keywords = (p.replace(kind=Parameter.KEYWORD_ONLY) for p in by_keyword)
        signature = Signature([*first, *keywords])
        parameters = signature.parameters.values()
        names = tuple(p.name for p in first)
        tiles = tuple(p.name for p in parameters if p.annotation is TensorView)
        required = {p.name for p in parameters if p.default is p.empty}
        defaults = {p.name: p.default for p in parameters if p.default is not p.empty}

        def call(*args: Any, **kwargs: Any) -> Any:
            values = dict(zip(names, args, strict=False)) | kwargs
            if len(values) < len(args) + len(kwargs) or not required <= values.keys():
                signature.bind(*args, **kwargs)  # raises TypeError
            values = defaults | values
            own = result(values)
            for name in tiles:
                values[name] = builder.tile(values[name], name)
            if self.limits not in own.unchecked:
                given = {"dst": own.dst, **values} if self.in_place else values
                builder.check(self.limits, **given)
            return self.function(own, **values)

        functools.update_wrapper(call, self.function)
        call.__signature__ = signature  # type: ignore[attr-defined]
        call.shared = self  # type: ignore[attr-defined]
        return call


def instruction(
    positional: str = "",
    keywords: str = "dtype mask",
    *,
    later: str = "",
    limits: str = "",
    in_place: bool = False,
    in_sbuf: bool = False,
) -> Callable[[Callable[..., Any]], Callable[..., TensorView]]:
    """The call of `neuronxcc.nki` that a function is; it takes these parameters by position, `keywords` for its
    result, and not those that came `later`."""

    def decorate(function: Callable[..., Any]) -> Callable[..., TensorView]:
        shared = SharedCall(function, limits or function.__name__, in_place, in_sbuf)
        named = {"dst": parameter("dst")} if in_place else {}
        named |= shared.parameters(Result.defaults)
        for name in later.split():
            del named[name]
        first = [named.pop(name) for name in positional.split()]
        more = [parameter(name, None) for name in keywords.split()]

        def result(values: dict[str, Any]) -> Result:
            return Result(*(values.pop(name, None) for name in ("dst", "dtype", "mask")))

        return builder.api(shared.surface(first, [*named.values(), *more], result))

    return decorate


def parameter(name: str, default: Any = Parameter.empty) -> Parameter:
    """One that a dialect adds."""
    return Parameter(name, Parameter.POSITIONAL_OR_KEYWORD, default=default)
