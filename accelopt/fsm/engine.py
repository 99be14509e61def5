"""A state machine: states by name, declared transitions, the path that was walked, and its log."""

from __future__ import annotations

import asyncio
import inspect
import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

from accelopt.store import content_key

TERMINAL = "TERMINAL"
Context = TypeVar("Context")
Transitions = Mapping[str, tuple[str, ...]]


class State(ABC, Generic[Context]):
    """One state. `name` is by default the class name; all that changes lives in the context."""

    name: ClassVar[str]

    def __init_subclass__(cls, **keywords: object) -> None:
        super().__init_subclass__(**keywords)
        if "name" not in vars(cls):
            cls.name = cls.__name__

    @abstractmethod
    def execute(self, ctx: Context) -> str | Awaitable[str]:
        """Do the state's work on `ctx`; the name of the next state, or TERMINAL. May be async."""


class TableState(State[Context]):
    """A state that is a row of a table (`state`): `step` is its work, `following` where it leads."""

    following: ClassVar[tuple[str, ...]]
    step: ClassVar[Callable[[Any], object]]

    async def execute(self, ctx: Context) -> str:
        """The next state: the one that the step names, or the first of those that follow where its
        answer is true or none, else the second."""
        found = type(self).step(ctx)
        answer = await found if inspect.isawaitable(found) else found
        if isinstance(answer, str):
            return answer
        return self.following[1 if answer is False else 0]


def state(
    name: str, step: Callable[[Context], object], *following: str
) -> type[TableState[Context]]:
    """The state `name`, which does `step` to its context and leads to one of `following`."""

    class Made(TableState[Context]):
        pass

    Made.name, Made.following, Made.step = name, following, staticmethod(step)
    Made.__name__ = Made.__qualname__ = name
    Made.__module__, Made.__doc__ = step.__module__, step.__doc__
    return Made


def declared(states: Sequence[type[TableState[Any]]]) -> Transitions:
    """Every edge between `states`, in their order."""
    return {state.name: state.following for state in states}


class FSMEngine:
    """Runs states until TERMINAL. With `transitions`, every edge that they do not declare is refused.

    `path` has the states of the latest run in the order in which they were entered.
    """

    def __init__(
        self, logger: logging.Logger | None = None, transitions: Transitions | None = None
    ) -> None:
        self.logger = logger or logging.getLogger(__name__)
        self.transitions = transitions
        self.path: list[str] = []
        self._states: dict[str, State[Any]] = {}

    def add_state(self, state: State[Any]) -> FSMEngine:
        """Register `state` under its name; calls can be chained."""
        self._states[state.name] = state
        return self

    def run(self, initial: str, ctx: Any) -> None:
        """`run_async` outside of an event loop."""
        asyncio.run(self.run_async(initial, ctx))

    async def run_async(self, initial: str, ctx: Any) -> None:
        """From the state `initial` to TERMINAL.

        Raises ValueError for a name that is not registered and for an edge that is not declared.
        """
        self.path = []
        state = self._state(initial)
        while True:
            self.path.append(state.name)
            self.logger.debug("enter %s", state.name)
            found = state.execute(ctx)
            following = await found if inspect.isawaitable(found) else found
            self.logger.debug("leave %s for %s", state.name, following)
            self._check(state.name, following)
            if following == TERMINAL:
                return
            state = self._state(following)

    def _state(self, name: str) -> State[Any]:
        if name not in self._states:
            raise ValueError(f"there is no state {name!r}; there are {', '.join(self._states)}")
        return self._states[name]

    def _check(self, name: str, following: str) -> None:
        if self.transitions is None:
            return
        declared = self.transitions.get(name, ())
        if following not in declared:
            if following != TERMINAL:
                self._state(following)
            known = ", ".join(declared) or "none"
            raise ValueError(f"{name} leads to {following!r}, which is not declared: {known}")


@contextmanager
def log_to(path: Path) -> Iterator[logging.Logger]:
    """A logger whose records go to a file, and nowhere else."""
    path.parent.mkdir(parents=True, exist_ok=True)
    logger = logging.getLogger(f"accelopt.fsm.{content_key(str(path.resolve()))}")
    logger.setLevel(logging.DEBUG)
    logger.propagate = False
    handler = logging.FileHandler(path, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    logger.addHandler(handler)
    try:
        yield logger
    finally:
        logger.removeHandler(handler)
        handler.close()
