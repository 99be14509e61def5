"""Kernels that a script calls on the host: how often each was, and how long the simulated core says that
it takes."""

from __future__ import annotations

import hashlib
import sys
from collections import Counter
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType

from accelopt.sim import dtypes, serial, standin, timing
from accelopt.sim.dialects.host import HOST
from accelopt.sim.errors import KernelError
from accelopt.sim.program import Program

HEAD = "simulated: what accelopt predicts for one launch on a NeuronCore; nothing here was measured"


@dataclass
class _Launch:
    program: Program
    calls: int = 0


class Launches:
    """The kernels that this process calls, on `target` where they name no generation themselves,
    as kernels of a `version` of `nki` where one is said."""

    def __init__(self, target: str = "", version: str = "") -> None:
        self.target, self.version = target, version
        self._found: dict[bytes, _Launch] = {}

    def install(self) -> None:
        """Puts the simulated packages in the vendor's place, also where an SDK is installed."""
        standin.install(always=True)
        HOST.target, HOST.version, HOST.launched = self.target, self.version, self._count

        if find_spec("torch") is not None and find_spec("torch_xla") is None:
            _stand_in_for_torch_xla()

    def _count(self, program: Program) -> None:
        key = hashlib.sha256(serial.dumps(program)).digest()
        self._found.setdefault(key, _Launch(program)).calls += 1

    def report(self) -> str:
        """A table of the kernels in the order of their first calls; empty where there was none."""
        if not self._found:
            return ""
        counts: Counter[tuple[str, str]] = Counter()  # one kernel is traced at several lines
        for launch in self._found.values():
            counts[_time(launch.program), _signature(launch.program)] += launch.calls
        rows = [("calls", "predicted", "kernel")]
        rows += [(str(calls), time, name) for (time, name), calls in counts.items()]
        wide = [max(len(row[n]) for row in rows) for n in range(2)]
        lines = [f"{calls:>{wide[0]}}  {time:>{wide[1]}}  {name}" for calls, time, name in rows]
        return "\n".join(["", HEAD, *lines, ""])


def _stand_in_for_torch_xla() -> None:
    """Scripts for a Neuron device move their tensors there by torch_xla: here that device is the host."""

    def device(*_: object) -> object:
        return import_module("torch").device("cpu")

    def nothing(*_: object, **__: object) -> None:
        return None

    names: dict[str, dict[str, object]] = {
        "torch_xla": {"device": device, "sync": nothing},
        "torch_xla.core": {},
        "torch_xla.core.xla_model": {"xla_device": device, "mark_step": nothing},
    }
    for name, members in names.items():
        module = ModuleType(name)
        vars(module).update(members, __path__=[])
        sys.modules[name] = module
        parent, _, leaf = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], leaf, module)


def _time(program: Program) -> str:
    try:
        return f"{timing.profile(program).latency_ms:.4g} ms"
    except KernelError as error:  # a loop of the device, whose iterations the inputs decide
        return f"none: {error.message}"


def _signature(program: Program) -> str:
    given = ", ".join(
        f"{tensor.name}: {dtypes.name_of(tensor.dtype)}{list(tensor.shape)}"
        for tensor in program.arguments
    )
    return f"{program.name}({given}) on {program.target}, at {program.source}"
