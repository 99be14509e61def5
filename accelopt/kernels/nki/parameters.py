"""What a kernel is given for each parameter: shapes and formats of tensors, and plain values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from accelopt.kernels.nki.kernel_function import kernel_parameters

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


def by_parameter(kernel: str, given: Sequence[ParameterFacts]) -> dict[str, ParameterFacts]:
    """What is passed to a kernel, in order, by the names of its parameters; by numbers where its text
    does not say these (it is imported from another file)."""
    names = kernel_parameters(kernel) or [f"argument{number}" for number in range(len(given))]
    return dict(zip(names, given, strict=False))
