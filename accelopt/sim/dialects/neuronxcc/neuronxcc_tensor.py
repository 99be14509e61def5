"""The tensor that kernel code holds: it can be indexed, viewed otherwise and assigned to, never read.

Its operators are instructions, which `language/elementwise.py` gives it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from accelopt.sim.dialects.neuronxcc.assignment import assign
from accelopt.sim.dialects.neuronxcc.builder import fail, parse_dtype
from accelopt.sim.dialects.neuronxcc.index import MaskExpression
from accelopt.sim.dialects.neuronxcc.language import movement
from accelopt.sim.dialects.neuronxcc.language.creation import NAMES
from accelopt.sim.dialects.neuronxcc.poison import POISON, is_poisoned
from accelopt.sim.dialects.neuronxcc.subscript import subscript
from accelopt.sim.dialects.neuronxcc.tensor import TensorView
from accelopt.sim.errors import KernelError, KernelValueError
from accelopt.sim.mask import NOTHING
from accelopt.sim.tracer import current


class NeuronxccTensor(TensorView):
    """A view with the methods that `neuronxcc.nki` gives its tensors."""

    __slots__ = ()

    @property
    def buffer(self) -> Any:
        """Its memory: nl.hbm, nl.shared_hbm, nl.sbuf or nl.psum."""
        return NAMES[self.storage.buffer.value]

    def __getitem__(self, key: Any) -> NeuronxccTensor:
        if isinstance(key, MaskExpression):
            return self.replaced(mask=self.mask & key.mask)
        if isinstance(key, (bool, np.bool_)):  # a comparison of numbers, where a loop is unrolled
            return self if key else self.replaced(mask=NOTHING)
        tracer = current()
        if not tracer.collecting:
            return subscript(self, key)
        try:
            return subscript(self, key)
        except KernelError as error:
            tracer.collect(error)
            return POISON  # type: ignore[return-value]

    def view(self, dtype: Any) -> NeuronxccTensor:
        """The same bytes as another dtype; the last dimension changes with the item size."""
        new = parse_dtype(dtype)
        old, size = self.dtype.itemsize, new.itemsize
        if size == old:
            return self.replaced(dtype=new)
        steps = (
            *self.strides[:-1],
            *(factor for _, factor in self.offset.terms),
            self.offset.constant,
        )
        fits = self.strides[-1] == 1 and all(n * old % size == 0 for n in (*steps, self.shape[-1]))
        if not fits:
            fail(KernelValueError("view", f"cannot view {self!r} as {new}."))
        return self.replaced(
            dtype=new,
            shape=(*self.shape[:-1], self.shape[-1] * old // size),
            strides=(*(stride * old // size for stride in self.strides[:-1]), 1),
            offset=self.offset * old // size,
        )

    def astype(self, dtype: Any) -> TensorView:
        """A copy in another dtype."""
        converted: TensorView = movement.copy(self, dtype=dtype)
        return converted

    def __setitem__(self, key: Any, value: Any) -> None:
        target = self[key]
        if is_poisoned((target, value)):
            current().written.add(self.storage)
            return
        if isinstance(value, TensorView) and value.updated_in_place:
            value.updated_in_place = False
            if value.access(value.mask).same_elements(target.access(value.mask)):
                return
        assign(target, value)
