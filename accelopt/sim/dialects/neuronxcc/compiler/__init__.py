"""neuronxcc.nki.compiler: direct allocation and hints. Hints change nothing that is computed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from accelopt.sim.dialects.neuronxcc.absent import absent_names
from accelopt.sim.dialects.neuronxcc.compiler import psum, sbuf
from accelopt.sim.dialects.neuronxcc.kernel import Kernel

__all__ = [
    "allocation_scope", "enable_stack_allocator", "force_auto_alloc", "multi_buffer", "no_reorder",
    "psum", "sbuf", "skip_middle_end_transformations",
]  # fmt: skip


def _decorator(name: str) -> Any:
    def decorate(func: Any = None, **options: Any) -> Any:
        if func is None:
            return lambda inner: decorate(inner, **options)
        if isinstance(func, Kernel):
            marked = Kernel(func, mode=func.mode)
            marked.options[name] = True
            return marked
        return func

    decorate.__name__ = decorate.__qualname__ = name
    decorate.__doc__ = f"Marks a kernel with the compiler option `{name}`."
    return decorate


enable_stack_allocator = _decorator("enable_stack_allocator")
skip_middle_end_transformations = _decorator("skip_middle_end_transformations")
force_auto_alloc = _decorator("force_auto_alloc")


class Directive:
    """A hint for nl.sequential_range(directives=...)."""

    def __init__(self, name: str, factor: int = 1) -> None:
        self.name = name
        self.factor = factor


def multi_buffer(factor: int = 2) -> Directive:
    """Asks for `factor` buffers of what the loop makes."""
    return Directive("multi_buffer", int(factor))


def no_reorder() -> Directive:
    """Asks to keep the order of operations."""
    return Directive("no_reorder")


@contextmanager
def allocation_scope() -> Iterator[None]:
    """A scope whose tensors are freed together."""
    yield


__getattr__ = absent_names("nki.compiler", "")
