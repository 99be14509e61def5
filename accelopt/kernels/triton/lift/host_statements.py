"""Executes the statements of a host function that reads numbers from tensors.

Such a number is a scalar of the tracer. Loops over `range` are executed once, like those of kernels, where
that leaves no list or other object of Python changed, else one by one.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterator, Mapping
from types import FunctionType
from typing import Any

from accelopt.algorithm.index import Index
from accelopt.algorithm.traced_array import NotTraced
from accelopt.kernels.triton.lift.execution import Execution, Unknown, leaves_of
from accelopt.kernels.triton.lift.loops import TracedLoop, assigned_in
from accelopt.kernels.triton.lift.statements import Block, body_of, call

ONE_BY_ONE = (TypeError, IndexError, KeyError, ValueError, AttributeError)
"""What Python raises where it is given a scalar of the tracer for a number."""
OURS = ("accelopt", "numpy", "ml_dtypes")
"""Whose objects no host function changes but by what is traced."""
PLAIN = (int, float, str, bytes)


class HostBlock(Block):
    """The variables of a host function, and how its statements change them."""

    def traced(self, loop: TracedLoop) -> None:
        """Executes a loop once for all its iterations; refused where Python's objects would differ."""
        before, line = dict(self.names), self.line
        held = [(one, one.copy()) for one in _containers(before)]
        try:
            loop.execute()
            if any(_changed(one, copy) for one, copy in held):
                self.trace.refuse_at(line, "iterations change an object of Python")
        except ONE_BY_ONE as error:
            raise NotTraced(f"{type(error).__name__}: {error}", *line) from error
        finally:
            for one, copy in held:
                one.clear()
                one.update(copy) if isinstance(one, (dict, set)) else one.extend(copy)
        for name, last in assigned_in(loop.node.body).items():
            now = self.names.get(name)
            if leaves_of(self.trace, now) is not None or isinstance(now, Unknown):
                continue
            if name not in before:
                self.names[name] = Unknown("a loop leaves it", (line[0], last))
            elif now is not before[name]:
                self.trace.refuse_at(line, "iterations change a tensor or an object of Python")

    def item(self, index: Index) -> Any:
        """The variable of one iteration: Python's number, where it is one."""
        return super().item(index) if index.terms else index.constant


def _containers(names: Mapping[str, Any]) -> Iterator[Any]:
    """The lists, dictionaries and sets that variables hold, and attributes of objects, and those in them."""
    waiting, seen = [v for k, v in names.items() if not k.startswith("__")], set[int]()
    while waiting:
        one = waiting.pop()
        if not type(one).__module__.startswith(OURS) and not isinstance(one, (type, FunctionType)):
            one = getattr(one, "__dict__", one)
        if isinstance(one, (list, dict, set, tuple)) and id(one) not in seen:
            seen.add(id(one))
            waiting += one.values() if isinstance(one, dict) else one
            if not isinstance(one, tuple):
                yield one


def _changed(one: Any, copy: Any) -> bool:
    """Whether something else is in a container than was before."""
    if isinstance(one, set) or len(one) != len(copy):
        return bool(one != copy)
    pairs = (
        ((one[k], copy.get(k, one)) for k in one)
        if isinstance(one, dict)
        else zip(one, copy, strict=True)
    )
    return any(
        a is not b and not (isinstance(a, PLAIN) and type(a) is type(b) and a == b)
        for a, b in pairs
    )


def by_statements(execution: Execution, function: Callable[..., Any]) -> Callable[..., Any]:
    """A host function that is executed by its statements."""

    def called(*given: Any, **named: Any) -> Any:
        for node in (part for statement in body_of(function) for part in ast.walk(statement)):
            if isinstance(node, (ast.Global, ast.Nonlocal)):
                place = (function.__code__.co_filename, node.lineno)
                execution.trace.refuse_at(
                    place, f"{node.names[0]} is assigned outside of its function"
                )
        bound = inspect.signature(function).bind(*given, **named)
        bound.apply_defaults()
        return call(execution, function, bound.arguments, HostBlock)

    called.__signature__ = inspect.signature(function)  # type: ignore[attr-defined]
    return called
