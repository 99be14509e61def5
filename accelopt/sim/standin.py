"""Puts the simulated `neuronxcc` into sys.modules when no Neuron SDK is installed."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from types import ModuleType

ALIASES = {
    "neuronxcc.nki": "accelopt.sim.nki",
    "neuronxcc.nki.language": "accelopt.sim.nki.language",
    "neuronxcc.nki.isa": "accelopt.sim.nki.isa",
    "neuronxcc.nki.typing": "accelopt.sim.nki.typing",
    "neuronxcc.nki.compiler": "accelopt.sim.nki.compiler",
}


def sdk_installed() -> bool:
    """True when a real `neuronxcc.nki` can be imported (the PyPI packages are empty stubs)."""
    if isinstance(sys.modules.get("neuronxcc"), StandIn):
        return False
    try:
        return importlib.util.find_spec("neuronxcc.nki") is not None
    except (ImportError, ValueError):
        return False


class StandIn(ModuleType):
    """The top of the simulated package."""


def install() -> bool:
    """Makes `import neuronxcc.nki` work. Returns True when the simulated core answers it, False
    when a real SDK is there and wins. Calling it again changes nothing."""
    if sdk_installed():
        return False
    if isinstance(sys.modules.get("neuronxcc"), StandIn):
        return True
    top = StandIn("neuronxcc")
    top.__path__ = []
    top.__version__ = "2.0.0+accelopt.sim"
    sys.modules["neuronxcc"] = top
    for name, home in ALIASES.items():
        module = importlib.import_module(home)
        sys.modules[name] = module
        parent, _, leaf = name.rpartition(".")
        setattr(sys.modules[parent], leaf, module)
    return True
