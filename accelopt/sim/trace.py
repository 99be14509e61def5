"""Runs a kernel once on symbolic tensors and takes the Program it leaves.

Loop bodies are traced once, with a symbolic index, as the Beta 1 tracer does. When the kernel's
Python needs the index as a number (`if i == 0`, `tiles[i]`, `count += 1`), the loop that it belongs
to is marked, and tracing starts again with that one loop unrolled.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from accelopt.sim.assignment_folding import fold_assignments
from accelopt.sim.call_sites import LoopKey
from accelopt.sim.conditions import GuardedBody
from accelopt.sim.errors import NOWHERE, KernelError, KernelValueError, SourceLine
from accelopt.sim.garbage_collection import collector_paused
from accelopt.sim.program import Buffer, Program, Tensor
from accelopt.sim.rules import kernels
from accelopt.sim.tracer import Conventions, NeedsConcrete, Returned, Tracer, recording


class AbstractTensor(NamedTuple):
    """An argument without data: shape and dtype."""

    shape: tuple[int, ...]
    dtype: np.dtype


def declare_argument(tracer: Tracer, name: str, shape: tuple[int, ...], dtype: np.dtype) -> Tensor:
    """The tensor in HBM that an argument is. Raises KernelValueError for one without elements: there
    is nothing that an instruction could read or write of it."""
    if 0 in shape:
        said = f"the argument '{name}' of shape {shape} has no elements."
        mend = "Give it one element at least in every dimension."
        raise tracer.blamed(KernelValueError("shape", said, mend))
    tensor = tracer.declare(shape, dtype, Buffer.HBM, name=name)
    tracer.arguments.append(tensor)
    return tensor


AWAITED: ContextVar[bool] = ContextVar("AWAITED", default=False)
"""Whether somebody reads `HostLaunch`: the host function that a kernel's file has is called for it."""


class HostLaunch(BaseException):
    """A kernel was called on the host with arguments without data: there is nothing to execute, and
    whoever gave these arguments reads here what was launched. No exception of the kernel's, so that a
    host function cannot take it for a failure."""

    def __init__(self, kernel: object, arguments: tuple[object, ...], keywords: dict[str, object]):
        self.kernel = kernel
        self.arguments = arguments
        self.keywords = keywords


def raise_if_awaited(kernel: object, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """HostLaunch for a call with arguments without data, where one is awaited."""
    given = (*args, *kwargs.values())
    if AWAITED.get() and any(isinstance(value, AbstractTensor) for value in given):
        raise HostLaunch(kernel, args, kwargs)


Record = Callable[[Tracer], Returned]
"""Runs the kernel under a tracer: declares arguments, calls, tells what came back."""


def trace(
    record: Record,
    *,
    name: str,
    conventions: Conventions,
    target: str = "trn1",
    source: SourceLine = NOWHERE,
    report: Callable[[KernelError], None] | None = None,
    unrolled: frozenset[LoopKey] = frozenset(),
    restarts: int | None = None,
) -> Program:
    """Runs `record` until no loop asks to be unrolled any more, and returns the Program. `unrolled`
    are loops that are from the start; after so many `restarts` NeedsConcrete is raised.

    Raises KernelError for whatever the kernel does that NKI refuses, or hands it to `report`.
    """
    with collector_paused():
        program = _recorded(record, name, target, source, report, conventions, unrolled, restarts)
        return replace(program, **fold_assignments(program))


def _recorded(
    record: Record,
    name: str,
    target: str,
    source: SourceLine,
    report: Callable[[KernelError], None] | None,
    conventions: Conventions,
    unrolled: frozenset[LoopKey],
    restarts: int | None,
) -> Program:
    """As `trace`, with assignments as the copies that they are."""
    conditions: frozenset[GuardedBody] = frozenset()
    for attempt in itertools.count():
        collected: list[KernelError] = []
        listen = collected.append if report else None
        tracer = Tracer(target, conventions, unrolled, listen, conditions, source)
        try:
            with recording(tracer):
                returned = record(tracer)
                if tracer.left_loops and not tracer.demanded:
                    tracer.refuse(kernels.left_early("break or return").at(tracer.left_loops[0]))
            if tracer.demanded:
                raise NeedsConcrete(frozenset(tracer.demanded), frozenset(tracer.conditions))
        except (NeedsConcrete, Exception) as error:  # not Ctrl-C or exit: those end the trace
            wanted = frozenset(tracer.demanded)
            # An error ends the loops around it as `break` does, which asks to unroll them. A rule's
            # error stands; another is only believed when Python has run as it is written.
            if wanted <= unrolled or error is tracer.failure or attempt == restarts:
                raise
            unrolled |= wanted
            conditions |= tracer.conditions
            continue
        finally:
            if report and not tracer.demanded:
                for violation in collected:
                    report(violation)
        root = tracer.bodies[0]
        arguments = tuple(tracer.arguments)
        given = set(arguments)
        return Program(
            name,
            arguments,
            returned.results,
            tuple(root.nodes),
            tuple(tensor for tensor in root.tensors if tensor not in given),
            returned.sequence,
            target,
            source,
            returned.shapes,
            conventions.dialect,
        )
    raise AssertionError("unreachable")
