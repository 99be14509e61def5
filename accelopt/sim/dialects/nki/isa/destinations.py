"""Calls of `nisa` that both dialects have, as `nki` takes them: their destination first."""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType
from typing import Any

from accelopt.sim.dialects.neuronxcc import builder
from accelopt.sim.dialects.neuronxcc.builder import fail
from accelopt.sim.dialects.neuronxcc.isa.checks import ALU_UNARY
from accelopt.sim.dialects.neuronxcc.isa.shared_calls import Result, SharedCall, parameter
from accelopt.sim.dialects.neuronxcc.operation_names import ACTIVATIONS
from accelopt.sim.dialects.neuronxcc.tensor import TensorView
from accelopt.sim.dialects.nki import call_conventions
from accelopt.sim.dialects.nki.call_conventions import in_shape, instruction, member, on_engine
from accelopt.sim.dialects.nki.isa import enums
from accelopt.sim.errors import KernelValueError
from accelopt.sim.program import Engine

STANDALONE_ACTIVATIONS = ACTIVATIONS | {"gelu_apprx_sigmoid_dx"}


class Destination(Result):
    """The tile that a call names. Nothing is repeated, nothing masked; free axes are split and merged."""

    in_nki = True
    commands = enums.reduce_cmd
    defaults: Mapping[str, Any] = {
        "engine": enums.engine.unknown,
        "reduce_cmd": enums.reduce_cmd.idle,
    }
    activations = STANDALONE_ACTIVATIONS
    unary_operators = ALU_UNARY | {"square", "relu"}
    unchecked = frozenset(
        "tensor_scalar tensor_scalar_reduce scalar_tensor_tensor reciprocal tensor_copy tensor_reduce nc_stream_shuffle "
        "dropout".split()
    )

    def __init__(self, dst: Any, *, psum: bool = True) -> None:
        super().__init__()
        self.dst: TensorView = call_conventions.destination(dst, psum=psum)

    def written(self, value: Any, name: str) -> TensorView:
        return call_conventions.destination(value, name)

    def of(
        self, name: str, shape: tuple[int, ...], dtype: Any, like: TensorView | None = None
    ) -> TensorView:
        if like is not None:
            builder.check_same_partitions(dst=self.dst, data=like)
        return in_shape(name, self.dst, shape, "result")

    def alike(
        self, name: str, dtype: Any, repeats: bool = False, **tiles: TensorView
    ) -> tuple[TensorView, ...]:
        return call_conventions.alike(name, self.dst, **tiles)

    def column(self, value: Any, name: str, like: TensorView) -> Any:
        return None if value is None else call_conventions.scalar_or_column(value, name, like)

    def engine(self, engine: Any, **tiles: TensorView) -> Engine | None:
        return on_engine(engine, **tiles)

    def command(self, command: Any) -> str:
        given = member(self.commands, command, "reduce_cmd")
        if given is self.commands.load_reduce:
            said = "reduce_cmd.load_reduce is not simulated."
            fail(
                KernelValueError("reduce_cmd", said, "Start with reset_reduce and add afterwards.")
            )
        return str(given.name)


def destinations_first(
    family: ModuleType, module: str, **defaults: Mapping[str, Any]
) -> dict[str, Any]:
    """The shared calls of a family, by name, for a module of `nki`; `defaults` by call and parameter."""
    return {
        name: _destination_first(call.shared, module, defaults.get(name, {}))
        for name, call in vars(family).items()
        if hasattr(call, "shared") and call.__module__ == family.__name__
    }


def _destination_first(call: SharedCall, module: str, defaults: Mapping[str, Any]) -> Any:
    parameters = call.parameters({**Destination.defaults, **defaults})

    def result(values: dict[str, Any]) -> Destination:
        return Destination(values.pop("dst"), psum=not call.in_sbuf)

    written = call.surface([parameter("dst"), *parameters.values()], [], result)
    written.__module__ = module
    if not call.in_place:
        doc = written.__doc__ or ""
        written.__doc__ = f"dst = {doc[:1].lower()}{doc[1:]}"
    return instruction(written)
