"""What a kernel is given for each parameter, tensors and plain values, and what it gives back in the
reference's shapes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from pydantic import ConfigDict

from accelopt.errors import ConfigError
from accelopt.evaluation import Row, Status
from accelopt.kernels.nki.devices import KernelArgument, KernelFailure, TensorArgument
from accelopt.kernels.nki.kernel_function import kernel_parameters
from accelopt.kernels.nki.referee.reference import Reference
from accelopt.sim.dtypes import is_packed, name_of

PlainValue = float | int | bool | str | None
"""What a kernel may be given beside tensors."""
UNKNOWN = 1e-5
"""Stands for a plain argument of which nobody knows what it is."""


@dataclass(frozen=True)
class ParameterFacts:
    """What is known of a kernel parameter: a tensor's shape and dtype; a plain argument has no
    dimensions, and a value."""

    shape: tuple[int, ...]
    dtype: str = "float32"
    value: PlainValue = UNKNOWN

    @classmethod
    def of(cls, argument: KernelArgument) -> ParameterFacts:
        """Those of an argument."""
        if isinstance(argument, TensorArgument):
            return cls(argument.shape, argument.dtype)
        return cls((), value=argument)

    @property
    def argument(self) -> KernelArgument:
        """The argument that they are of."""
        return TensorArgument(self.shape, self.dtype) if self.shape else self.value


def by_parameter(kernel: str, given: Sequence[ParameterFacts]) -> dict[str, ParameterFacts]:
    """What is passed to a kernel, in order, by the names of its parameters; by numbers where its text
    does not say these (it is imported from another file)."""
    names = kernel_parameters(kernel) or [f"argument{number}" for number in range(len(given))]
    return dict(zip(names, given, strict=False))


def argument_of(value: object) -> KernelArgument:
    """A kernel input without its data. Raises KernelFailure for what no kernel can be given."""
    if isinstance(value, np.ndarray) and value.ndim:
        if is_packed(value.dtype):
            said = f"a kernel input of {name_of(value.dtype)} cannot be drawn: packed elements are made by "
            raise KernelFailure(
                Status.COMPILE_ERROR,
                f"{said}nisa.quantize_mx, or given in a script to `accelopt python`",
            )
        return TensorArgument(value.shape, value.dtype.name)
    if isinstance(value, (np.ndarray, np.generic)):
        scalar: float | int | bool = value.item()
        return scalar
    if value is None or isinstance(value, (float, int, bool, str)):
        return value
    raise KernelFailure(
        Status.COMPILE_ERROR, f"a kernel input of type {type(value).__name__} cannot be passed"
    )


def shaped_outputs(
    reference: Reference, outputs: tuple[np.ndarray, ...], expected: tuple[np.ndarray, ...]
) -> list[Any]:
    """The kernel's outputs in the reference's shapes. Raises KernelFailure where that fails."""
    try:
        return reference.kernel_outputs(outputs, expected)
    except Exception as error:  # the reference's own Python, on shapes it does not expect
        said = f"{type(error).__name__}: {error}"
        raise KernelFailure(
            Status.WRONG_SHAPE,
            f"outputs of shapes {[output.shape for output in outputs]} cannot be brought into "
            f"{[output.shape for output in expected]}: {said}",
        ) from error


class MadeArguments(Row):
    """The kernel inputs that a reference makes, in order."""

    model_config = ConfigDict(ser_json_inf_nan="constants")  # as "Infinity" they would be text

    arguments: tuple[ParameterFacts, ...] = ()


def arguments_job(payload: Mapping[str, object]) -> MadeArguments:
    """What the reference `task` makes; nothing when it fails."""
    try:
        problem = Reference(str(payload["task"]))
        values = problem.kernel_inputs(problem.inputs(0))
        facts = (ParameterFacts.of(argument_of(value)) for value in values)
        return MadeArguments(arguments=tuple(facts))
    except (ConfigError, KernelFailure):
        return MadeArguments()
