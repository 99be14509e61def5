"""Puts the simulated `neuronxcc` into sys.modules when no Neuron SDK is installed."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from types import ModuleType

from accelopt.sim.call_sites import running_line
from accelopt.sim.errors import NOWHERE, UnsupportedDialect

ALIASES = {
    "neuronxcc.nki": "accelopt.sim.nki",
    "neuronxcc.nki.language": "accelopt.sim.nki.language",
    "neuronxcc.nki.language.constants": "accelopt.sim.nki.language.constants",
    "neuronxcc.nki.isa": "accelopt.sim.nki.isa",
    "neuronxcc.nki.isa.constants": "accelopt.sim.nki.isa.constants",
    "neuronxcc.nki.isa.neuron_isa": "accelopt.sim.nki.isa.neuron_isa",
    "neuronxcc.nki.typing": "accelopt.sim.nki.typing",
    "neuronxcc.nki.compiler": "accelopt.sim.nki.compiler",
    "neuronxcc.nki.compiler.sbuf": "accelopt.sim.nki.compiler.sbuf",
    "neuronxcc.nki.compiler.psum": "accelopt.sim.nki.compiler.psum",
    "neuronxcc.nki.compiler.backends.neuron.indexing": "accelopt.sim.nki.compiler.indexing",
    "neuronxcc.nki.compiler.backends.neuron.tensor": "accelopt.sim.nki.compiler.tensors",
}
"""Modules that exist, and who answers them."""

ABSENT = (
    "neuronxcc.nki.nccl",
    "neuronxcc.nki.nccl.collectives",
    "neuronxcc.nki._private",
    "neuronxcc.nki._private.private_api",
    "neuronxcc.nki._private_kernels",
    "neuronxcc.nki._private_nkl",
    "neuronxcc.nki.kernels",
    "neuronxcc.nki.kernels.attention",
    "neuronxcc.nki.language.iterators",
    "neuronxcc.nki.docs",
    "neuronxcc.nki.docs.examples",
    "neuronxcc.starfish",
    "neuronxcc.starfish.support",
)
"""Packages whose names can be imported and are refused when they are called."""


def sdk_installed() -> bool:
    """True when a real `neuronxcc.nki` can be imported (the PyPI packages are empty stubs)."""
    if isinstance(sys.modules.get("neuronxcc"), StandIn):
        return False
    try:
        return importlib.util.find_spec("neuronxcc.nki") is not None
    except (ImportError, ValueError):
        return False


class OtherDialect:
    """A finder, asked last, that says what is understood when a kernel is written in the dialect that
    followed (`import nki`, SDK 2.26 and later) and no package of that name is installed."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        """Raises UnsupportedDialect for `nki` and what is in it, imported by a kernel."""
        place = running_line()
        if name.partition(".")[0] == "nki" and place != NOWHERE:
            raise UnsupportedDialect(name, place)


class StandIn(ModuleType):
    """The top of the simulated package, and the packages between it and our modules."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__path__: list[str] = []


def install(*, always: bool = False) -> bool:
    """Makes `import neuronxcc.nki` work. Returns True when the simulated core answers it, False
    when a real SDK is there and wins, which with `always` it does not: where there is an SDK but no
    core, kernels still run simulated. Calling it again changes nothing."""
    if sdk_installed() and not always:
        return False
    if isinstance(sys.modules.get("neuronxcc"), StandIn):
        return True
    sys.meta_path.append(OtherDialect)  # type: ignore[arg-type]
    top = StandIn("neuronxcc")
    top.__version__ = "2.0.0+accelopt.sim"  # type: ignore[attr-defined]
    sys.modules["neuronxcc"] = top
    for name, home in ALIASES.items():
        _place(name, importlib.import_module(home))
    absent = importlib.import_module("accelopt.sim.nki.absent")
    for name in ABSENT:
        _place(name, absent.AbsentModule(name))
    return True


def _place(name: str, module: ModuleType) -> None:
    """Registers a module under a name, and what lies between it and `neuronxcc`."""
    parent, _, leaf = name.rpartition(".")
    if parent not in sys.modules:
        _place(parent, StandIn(parent))
    sys.modules[name] = module
    setattr(sys.modules[parent], leaf, module)
