"""Two nested state machines: a manager over rounds, and workers that diagnose, write, test, repair,
measure and reflect."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from accelopt.fsm.fsm_manager import FSMOptimizationManager
    from accelopt.fsm.manager import OptimizationManager

__all__ = ["FSMOptimizationManager", "OptimizationManager"]

_PLACES = {"FSMOptimizationManager": "fsm_manager", "OptimizationManager": "manager"}


def __getattr__(name: str) -> object:
    """The managers are imported when they are asked for: a worker's process needs neither."""
    from importlib import import_module

    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)
