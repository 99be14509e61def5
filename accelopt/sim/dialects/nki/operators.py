"""Python's operators, which tensors of the `nki` package do not have. Source: SDK 2.32, language guide."""

from __future__ import annotations

from typing import Any, TypeVar

from accelopt.sim.dialects.neuronxcc.builder import fail
from accelopt.sim.errors import KernelTypeError

_BINARY = {
    "add": "+", "sub": "-", "mul": "*", "truediv": "/", "pow": "**", "mod": "%", "and": "&",
    "or": "|", "xor": "^", "lshift": "<<", "rshift": ">>", "floordiv": "//", "matmul": "@",
}  # fmt: skip
_OTHERS = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "neg": "-", "invert": "~"}
COMPARISONS = frozenset({"<", "<=", ">", ">="})
COMPUTED = "Call nisa.tensor_tensor(dst, ...) or nl.add and its like."
COMPARED = (
    "Call nl.greater and its like for a tile of truth values. Python runs while the kernel is "
    "compiled and cannot branch on them: select with nl.where, or loop on the device with "
    "nl.while_loop and a register."
)
T = TypeVar("T", bound=type)


def without_operators(kind: T) -> T:
    """`kind` with all operators refused, but for equality, which is identity."""
    for name, sign in _BINARY.items():
        for form, shown in (("", sign), ("r", sign), ("i", f"{sign}=")):
            setattr(kind, f"__{form}{name}__", _refused(shown))
    for name, sign in _OTHERS.items():
        setattr(kind, f"__{name}__", _refused(sign))
    for name in ("__eq__", "__ne__", "__hash__"):
        setattr(kind, name, getattr(object, name))
    return kind


def _refused(name: str) -> Any:
    def method(*_: Any) -> Any:
        fail(
            KernelTypeError(
                "tensor_operator",
                f"nki tensors have no operator {name}.",
                COMPARED if name in COMPARISONS else COMPUTED,
            )
        )

    return method
