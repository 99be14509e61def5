"""Puts the simulated `neuronxcc.nki` and `nki` into sys.modules when no Neuron SDK is installed."""

from __future__ import annotations

import importlib
import importlib.util
import logging
import sys
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

from accelopt.sim.call_sites import running_line
from accelopt.sim.errors import NOWHERE, UnsupportedDialect

ALIASES = {
    "neuronxcc.nki": "accelopt.sim.dialects.neuronxcc",
    "neuronxcc.nki.language": "accelopt.sim.dialects.neuronxcc.language",
    "neuronxcc.nki.language.constants": "accelopt.sim.dialects.neuronxcc.language.constants",
    "neuronxcc.nki.isa": "accelopt.sim.dialects.neuronxcc.isa",
    "neuronxcc.nki.isa.constants": "accelopt.sim.dialects.neuronxcc.isa.constants",
    "neuronxcc.nki.isa.neuron_isa": "accelopt.sim.dialects.neuronxcc.isa.neuron_isa",
    "neuronxcc.nki.typing": "accelopt.sim.dialects.neuronxcc.typing",
    "neuronxcc.nki.compiler": "accelopt.sim.dialects.neuronxcc.compiler",
    "neuronxcc.nki.compiler.sbuf": "accelopt.sim.dialects.neuronxcc.compiler.sbuf",
    "neuronxcc.nki.compiler.psum": "accelopt.sim.dialects.neuronxcc.compiler.psum",
    "neuronxcc.nki.compiler.backends.neuron.indexing": "accelopt.sim.dialects.neuronxcc.compiler.indexing",
    "neuronxcc.nki.compiler.backends.neuron.tensor": "accelopt.sim.dialects.neuronxcc.compiler.tensors",
}
"""Modules of the first dialect that exist, and who answers them."""

STANDALONE = {
    "nki.language": "accelopt.sim.dialects.nki.language",
    "nki.isa": "accelopt.sim.dialects.nki.isa",
    "nki.collectives": "accelopt.sim.dialects.nki.collectives",
    "nki.isa.constants": "accelopt.sim.dialects.nki.isa.enums",
    "nki.dtype": "accelopt.sim.dialects.nki.language.memories",
    "nki.typing": "accelopt.sim.dialects.neuronxcc.typing",
}
"""Modules of the `nki` package that exist, and who answers them."""

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

STANDALONE_ABSENT = {
    "nki.compiler": "",
    "nki.compiler.kernel_builder": "",
    "nki.experimental": "",
}
"""The same of the `nki` package, each with what calling its names would take."""


def sdk_installed(package: str = "neuronxcc") -> bool:
    """True when a real `neuronxcc.nki`, or a real `nki.language`, can be imported (the PyPI packages
    of these names are empty stubs)."""
    if isinstance(sys.modules.get(package), StandIn):
        return False
    probe = "neuronxcc.nki" if package == "neuronxcc" else "nki.language"
    try:
        return importlib.util.find_spec(probe) is not None
    except (ImportError, ValueError):
        return False


class UnknownModule:
    """A finder, asked last, that says what is understood when a kernel imports a module of either
    dialect that the simulated core does not know."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        """Raises UnsupportedDialect for unknown modules of `nki` and `neuronxcc`, imported by a
        kernel."""
        place = running_line()
        if name.partition(".")[0] in ("nki", "neuronxcc") and place != NOWHERE:
            raise UnsupportedDialect(name, place)


class StandIn(ModuleType):
    """The top of a simulated package, and the packages between it and our modules."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__path__: list[str] = []


def install(*, always: bool = False) -> bool:
    """Makes `import neuronxcc.nki` and `import nki` work, both in one process. Returns True when the
    simulated core answers the first, False when a real SDK is there and wins, which with `always` it
    does not: where there is an SDK but no core, kernels still run simulated. Calling it again changes
    nothing."""
    first = _installed("neuronxcc", always, _first_dialect)
    if not hasattr(logging, "OFF"):
        # The vendor's package adds this level when it is imported, and kernels' files use it. Its number
        # is not documented: an assumption, above CRITICAL.
        logging.OFF = logging.CRITICAL + 10  # type: ignore[attr-defined]
    _installed("nki", always, _standalone)
    if UnknownModule not in sys.meta_path:
        sys.meta_path.append(UnknownModule)  # type: ignore[arg-type]
    return first


def _installed(package: str, always: bool, place: Callable[[], None]) -> bool:
    if sdk_installed(package) and not always:
        return False
    if not isinstance(sys.modules.get(package), StandIn):
        for name in [n for n in sys.modules if n.partition(".")[0] == package]:
            del sys.modules[name]  # a real one that was imported before
        place()
    return True


def _first_dialect() -> None:
    top = StandIn("neuronxcc")
    top.__version__ = "2.0.0+accelopt.sim"  # type: ignore[attr-defined]
    sys.modules["neuronxcc"] = top
    _fill(ALIASES, dict.fromkeys(ABSENT, ""))


def _standalone() -> None:
    top, home = StandIn("nki"), importlib.import_module("accelopt.sim.dialects.nki")
    for name in (*home.__all__, "__version__"):
        setattr(top, name, getattr(home, name))
    top.__getattr__ = _of_the_older_package  # type: ignore[method-assign]
    sys.modules["nki"] = top
    _fill(STANDALONE, STANDALONE_ABSENT)


def _of_the_older_package(name: str) -> Any:
    """What scripts look for in `nki` that only `neuronxcc.nki` has (release notes of NKI 0.2)."""
    if name == "simulate_kernel":
        raise AttributeError(
            "nki has no simulate_kernel: write nki.simulate(kernel)(...) (NKI 0.3)."
        )
    if name in ("baremetal", "benchmark", "profile"):
        said = f"nki has no {name} since NKI 0.2: call the kernel. neuron-explorer measures it on a core, and"
        raise AttributeError(f"{said} `accelopt python` says what is predicted.")
    raise AttributeError(f"module 'nki' has no attribute {name!r}")


def _fill(present: Mapping[str, str], absent: Mapping[str, str]) -> None:
    for name, home in present.items():
        _place(name, importlib.import_module(home))
    module = importlib.import_module("accelopt.sim.dialects.neuronxcc.absent")
    for name, mend in absent.items():
        _place(name, module.AbsentModule(name, mend))


def _place(name: str, module: ModuleType) -> None:
    """Registers a module under a name, and what lies between it and its package's top."""
    parent, _, leaf = name.rpartition(".")
    if parent not in sys.modules:
        _place(parent, StandIn(parent))
    sys.modules[name] = module
    setattr(sys.modules[parent], leaf, module)
