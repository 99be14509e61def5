"""Two nested state machines: a manager over rounds, and workers that diagnose, write, test, repair,
measure and reflect."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from accelopt.fsm.fsm_manager import FSMOptimizationManager, OptimizationManager

__all__ = ["FSMOptimizationManager", "OptimizationManager"]


def __getattr__(name: str) -> object:
    """The manager is imported when it is asked for: a worker's process does not need it."""
    from importlib import import_module

    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.fsm_manager"), name)
