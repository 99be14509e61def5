"""The function tools that a model may use before it answers, and what they leave: checked kernels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from accelopt.agents.calls import Tool
from accelopt.agents.proposer import KernelView

KEPT = 1  # of a job's evaluations: for the answer itself, whatever tools try out


class CheckedKernel(NamedTuple):
    """A kernel that a model had checked; `latency` in ms, None where it is not correct."""

    source: str
    latency: float | None


@dataclass
class ToolSession:
    """One conversation's tools, and the kernels that it had checked on the way, in order."""

    tools: tuple[Tool, ...] = ()
    checked: list[CheckedKernel] = field(default_factory=list)

    @property
    def sources(self) -> tuple[str, ...]:
        """All kernels that were checked, in order."""
        return tuple(one.source for one in self.checked)

    @property
    def best(self) -> CheckedKernel | None:
        """The fastest correct kernel that was checked."""
        right = [one for one in self.checked if one.latency is not None]
        return min(right, key=lambda one: one.latency or 0.0, default=None)


class ToolNote(NamedTuple):
    """A tool as a prompt tells of it."""

    name: str
    argument: str
    description: str


class Toolbox(NamedTuple):
    """Opens a session of tools for one answer about one kernel. `limit` calls an answer may use, of the tools
    that prompts are `told` of."""

    open: Callable[[KernelView], ToolSession]
    limit: int
    told: tuple[ToolNote, ...] = ()
