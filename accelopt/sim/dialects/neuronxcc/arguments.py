"""What a kernel is launched with: arrays become tensors in HBM, whatever holds them."""

from __future__ import annotations

import copy
import inspect
import itertools
from collections.abc import Callable, Sequence
from enum import Enum
from types import FunctionType
from typing import Any

import numpy as np

from accelopt.sim.dialects.neuronxcc.rewriting import check_annotation
from accelopt.sim.dialects.neuronxcc.tensor import TensorView, whole
from accelopt.sim.trace import AbstractTensor, declare_argument
from accelopt.sim.tracer import Tracer


def is_array(value: Any) -> bool:
    """Whether a value becomes a tensor."""
    return isinstance(value, AbstractTensor) or (isinstance(value, np.ndarray) and value.ndim > 0)


def declared(
    tracer: Tracer,
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: dict[str, Any],
    element: Callable[[Any], np.dtype],
) -> tuple[list[Any], dict[str, Any]]:
    """The arguments of a call as the kernel gets them, named as its parameters; `element` reads a number
    format."""

    def tensor(name: str, value: Any) -> Any:
        if isinstance(value, np.ndarray) and value.ndim == 0:
            return value[()]
        if not is_array(value):
            return value
        return whole(declare_argument(tracer, name, tuple(value.shape), element(value.dtype)))

    try:
        names = list(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        names = []
    names += [f"argument{n}" for n in range(len(names), len(args))]
    given = [each(tensor, name, value) for name, value in zip(names, args, strict=False)]
    return given, {name: each(tensor, name, value) for name, value in kwargs.items()}


def annotated(
    function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]
) -> list[tuple[TensorView, Any]]:
    """The tensors among the arguments of a call that are annotated, each with its annotation, whose shape
    they must have."""
    annotations = annotations_of(function)
    names = list(inspect.signature(function).parameters)
    given = dict(zip(names, args, strict=False)) | kwargs
    found = [
        (name, value)
        for name, value in given.items()
        if isinstance(value, TensorView) and annotations.get(name) is not None
    ]
    return [(check_annotation(v, annotations[name], name), annotations[name]) for name, v in found]


def annotations_of(function: Callable[..., Any]) -> dict[str, Any]:
    """The annotations of a kernel's parameters, evaluated when its module postpones that."""
    try:
        return inspect.get_annotations(function, eval_str=True)
    except Exception:  # a name that exists for type checkers only
        return inspect.get_annotations(function)


def each(change: Callable[[str, Any], Any], name: str, value: Any) -> Any:
    """A value with everything in it changed, by name, also in sequences, dicts and fields of objects."""
    if isinstance(value, (list, tuple)) and not isinstance(value, AbstractTensor):
        items = [each(change, f"{name}{n}", item) for n, item in enumerate(value)]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    if isinstance(value, dict):
        return {key: each(change, f"{name}_{key}", item) for key, item in value.items()}
    if _is_record(value) and not isinstance(value, (AbstractTensor, np.ndarray, TensorView)):
        twin = copy.copy(value)
        for field, item in vars(value).items():
            object.__setattr__(twin, field, each(change, f"{name}_{field}", item))
        return twin
    return change(name, value)


def leaves(value: Any) -> list[Any]:
    """Everything in nested sequences, dicts and objects, in the order of `each`."""
    if is_array(value):
        return [value]
    if isinstance(value, (list, tuple)):
        inside: Any = value
    elif isinstance(value, dict):
        inside = value.values()
    elif _is_record(value):
        inside = vars(value).values()
    else:
        return [value]
    return list(itertools.chain.from_iterable(map(leaves, inside)))


def tensors_of(arguments: Sequence[Any]) -> list[Any]:
    """The arguments that are tensors of the Program, in its order."""
    return [leaf for leaf in leaves([*arguments]) if is_array(leaf)]


def _is_record(value: Any) -> bool:
    """True for an instance of a kernel's own class, whose fields may be arrays."""
    plain = (type, Enum, FunctionType, np.generic, np.dtype)
    return hasattr(value, "__dict__") and not isinstance(value, plain) and not callable(value)
