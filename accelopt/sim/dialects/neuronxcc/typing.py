"""neuronxcc.nki.typing: annotations of kernel parameters and variables."""

from __future__ import annotations

from typing import Any, NoReturn

from accelopt.sim import dtypes
from accelopt.sim.call_sites import running_line
from accelopt.sim.dialects.neuronxcc.builder import fail
from accelopt.sim.dialects.neuronxcc.tensor import current_line
from accelopt.sim.errors import Unsupported
from accelopt.sim.rules import indexing, kernels
from accelopt.sim.trace import AbstractTensor


class TensorAnnotation:
    """nt.tensor[shape] as an annotation; nt.tensor[[shape], dtype] as an argument without data."""

    def __init__(self, name: str, shape: tuple[int, ...] | None = None) -> None:
        self.name = name
        self.shape = shape

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, tuple) and len(key) == 2 and isinstance(key[0], (list, tuple)):
            return AbstractTensor(tuple(int(n) for n in key[0]), dtypes.parse(key[1]))
        sizes = key if isinstance(key, tuple) else (key,)
        if all(isinstance(size, int) for size in sizes):
            return TensorAnnotation(self.name, tuple(int(size) for size in sizes))
        return self

    def __repr__(self) -> str:
        return f"nt.{self.name}"


tensor = TensorAnnotation("tensor")
mutable_tensor = TensorAnnotation("mutable_tensor")


class scalar:
    """nt.scalar(tile): a tile's value as a condition of control flow, which the simulated core
    does not have, as the value is not known while tracing."""

    def __init__(self, value: Any = None) -> None:
        self.value = value

    def _derived(self, other: Any) -> scalar:
        return scalar(None)

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = _derived
    __lt__ = __le__ = __gt__ = __ge__ = __and__ = __or__ = _derived

    def __bool__(self) -> bool:
        if isinstance(self.value, bool):
            raise Unsupported("do-while loops on nt.scalar", "Loop a fixed number of times.",
                              running_line())  # fmt: skip
        if current_line().startswith("while"):
            fail(kernels.while_on_tensor())
        fail(kernels.condition_on_tensor())

    def _used_as_number(self, *_: Any) -> NoReturn:
        mend = "Pass the number as an argument of the kernel."
        raise Unsupported("loops and indices by nt.scalar", mend, running_line())

    __index__ = __int__ = __float__ = _used_as_number

    def __array__(self, *_: Any, **__: Any) -> Any:
        fail(indexing.unsupported_mask("a run-time scalar is no affine expression."))


class mutable:
    """nt.mutable: an older spelling of nt.mutable_tensor."""
