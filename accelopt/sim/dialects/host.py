"""How kernels run that a script calls on the host: for which generation, who is told, and on whose arrays."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from accelopt.hardware import TARGETS
from accelopt.sim import dtypes
from accelopt.sim.program import Program


@dataclass
class Host:
    """`target` is the generation of kernels that say none themselves (empty: their dialect's default).
    `version` is that of `nki` which they are said to be for. `launched` is told of every Program before it is executed."""

    target: str = ""
    version: str = ""
    launched: Callable[[Program], None] | None = None


HOST = Host()
"""Of this process, like `sys.modules`, where `standin.install` puts the packages that scripts import."""


def tell(program: Program) -> None:
    """Says that a kernel was called on the host."""
    if HOST.launched is not None:
        HOST.launched(program)


BY_THEIR_BITS = {"float8_e4m3fn": "float8_e4m3"}
"""Formats of torch that the compiler can be told to take as others of the same bits for trn1 and trn2, which lack
them (NCC_EVRF051 of SDK 2.32: --experimental-unsafe-fp8e4m3fn-as-fp8e4m3)."""


def arrays_of(value: Any, target: str) -> Any:
    """`value` with NumPy arrays in the place of tensors of torch and jax that lie in this host's memory,
    inside of sequences and dicts too; those of torch share it, so that a kernel can write them."""
    if isinstance(value, dict):
        return {key: arrays_of(item, target) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(arrays_of(item, target) for item in value)
    framework = _framework(value)
    if framework == "jax":
        return np.asarray(value)
    if framework == "torch":
        torch, tensor = sys.modules["torch"], value.detach()
        name = str(tensor.dtype).removeprefix("torch.")
        if target in TARGETS and TARGETS[target].generation < 4:
            name = BY_THEIR_BITS.get(name, name)
        if name in dtypes.FORMATS and not hasattr(np, name):  # NumPy has it from ml_dtypes
            bits = torch.int16 if tensor.element_size() == 2 else torch.int8
            return tensor.contiguous().view(bits).numpy().view(dtypes.FORMATS[name])
        return tensor.numpy()
    return value


def in_framework_of(given: Any, results: Any) -> Any:
    """A kernel's results as its arguments were: tensors of torch or jax where one of them was."""
    frameworks = {_framework(value) for value in _leaves(given)} - {""}
    if isinstance(results, tuple):
        return tuple(in_framework_of(given, result) for result in results)
    if not frameworks or not isinstance(results, np.ndarray):
        return results
    if frameworks == {"jax"}:
        return sys.modules["jax"].numpy.asarray(results)
    torch, name = sys.modules["torch"], results.dtype.name
    if name in dtypes.FORMATS and not hasattr(np, name):
        bits = torch.from_numpy(results.view(f"i{results.dtype.itemsize}"))
        return bits.view(getattr(torch, {v: k for k, v in BY_THEIR_BITS.items()}.get(name, name)))
    return torch.from_numpy(results)


def _framework(value: Any) -> str:
    """`torch` or `jax` for one of its tensors, where a script has imported it."""
    for name, kind in (("torch", "Tensor"), ("jax", "Array")):
        found = getattr(sys.modules.get(name), kind, None)
        if found is not None and isinstance(value, found):
            return name
    return ""


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        for item in value:
            yield from _leaves(item)
    else:
        yield value
