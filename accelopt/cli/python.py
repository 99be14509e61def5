"""`accelopt python`: a script or a test suite of one's own, with the simulated core in the place of the
vendor's package."""

from __future__ import annotations

import builtins
import os
import runpy
import sys
import traceback
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Annotated

import numpy as np
import typer

from accelopt.cli.host_launches import Launches
from accelopt.cli.kernel_file import NkiVersion, known, known_version
from accelopt.errors import ConfigError

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
