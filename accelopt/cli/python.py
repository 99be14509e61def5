"""`accelopt python`: a script or a test suite of one's own, with the simulated core in the place of the
vendor's package."""

from __future__ import annotations

import builtins
import hashlib
import os
import runpy
import sys
import traceback
from collections import Counter
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Annotated

import numpy as np
import typer

from accelopt.cli.kernel_file import NkiVersion, known, known_version
from accelopt.errors import ConfigError
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


TARGET_VARIABLE = "NEURON_PLATFORM_TARGET_OVERRIDE"
GENERATIONS = {"gen2": "trn1", "gen3": "trn2", "gen4": "trn3", "inf2": "trn1"}
"""What the vendor's variable says besides trn1, trn2 and trn3 (SDK 2.32, guide of the CPU simulator)."""


def python(
    command: Annotated[
        list[str], typer.Argument(metavar="SCRIPT | -m MODULE [ARGUMENTS]...", show_default=False)
    ],
    target: Annotated[
        str | None,
        typer.Option(
            help="trn1, trn2 or trn3, for kernels that say none",
            envvar=TARGET_VARIABLE,
            show_default="trn2 for `nki`, trn1 for `neuronxcc.nki`",
        ),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="of NumPy's generator: of a script, and of every test")
    ] = None,
    nki: NkiVersion = "",
    times: Annotated[bool, typer.Option(help="say the predicted time of every kernel")] = True,
) -> None:
    """Run a SCRIPT, or a module such as `-m pytest TESTS`, as Python does, with its NKI kernels on the
    simulated core."""
    chosen = None if target is None else known(GENERATIONS.get(target, target))
    launches = Launches(chosen or "", known_version(nki))
    launches.install()
    if seed is not None:
        np.random.seed(seed)
    try:
        if command[0] == "-m":
            _run_module(command[1:], chosen, nki, seed)
        else:
            _run_script(command)
    finally:
        if times:
            print(launches.report(), end="", file=sys.stderr)


def _run_script(command: list[str]) -> None:
    script = Path(command[0])
    if not script.is_file():
        raise ConfigError(f"{script} is not a file; a module is run with -m")
    sys.argv[:] = command
    sys.path.insert(0, str(script.resolve().parent))
    main = sys.modules["__main__"] = ModuleType(
        "__main__"
    )  # what Python's own has, argv[0] as it was given
    file = str(script.absolute())
    main.__dict__.update(__file__=file, __builtins__=builtins)
    with _Traceback():
        exec(compile(script.read_bytes(), file, "exec"), main.__dict__)


def _run_module(command: list[str], target: str | None, nki: str, seed: int | None) -> None:
    if not command:
        raise ConfigError("-m needs the name of a module, as in `accelopt python -m pytest tests`")
    module, *arguments = command
    if module == "pytest":
        given = ["-p", "accelopt.cli.simulated_tests"]
        given += [] if target is None else [f"--accelopt-target={target}"]
        given += [f"--accelopt-nki={nki}"] if nki else []
        arguments = [*given, *([] if seed is None else [f"--accelopt-seed={seed}"]), *arguments]
    sys.argv[:] = [module, *arguments]
    sys.path.insert(0, os.getcwd())  # noqa: PTH109  (the entry that Python's own -m adds)
    with _Traceback():
        runpy.run_module(module, run_name="__main__", alter_sys=True)


class _Traceback:
    """What a script raises is shown as Python shows it, from the script's own first line on."""

    def __enter__(self) -> None:
        return None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        place: TracebackType | None,
    ) -> None:
        if not isinstance(error, Exception):
            return  # SystemExit and Ctrl-C are the script's own
        own = (__file__, runpy.__file__, "<frozen runpy>")
        while place is not None and place.tb_frame.f_code.co_filename in own:
            place = place.tb_next
        traceback.print_exception(kind, error, place)
        raise SystemExit(1) from None
