"""`accelopt ptx`: a compiled kernel as structure and work."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from accelopt.errors import ConfigError, reason
from accelopt.ptx import region_views
from accelopt.ptx.module import Module, NotPtx
from accelopt.ptx.regions import RegionDag, analyse_function
from accelopt.ptx.statements import read
from accelopt.report.ptx_text import line_text, ptx_text
from accelopt.store import existing

EVERY = 1 << 20
PtxFile = Annotated[
    Path, typer.Argument(metavar="FILE", help="PTX, as Triton and nvcc -ptx write it")
]


def ptx(
    file: PtxFile,
    kernel: Annotated[
        str, typer.Option(help="name, or part of one; without it every kernel of the file")
    ] = "",
    warps: Annotated[
        int, typer.Option(min=0, max=64, help="of a block, where the file does not say")
    ] = 0,
    stage: Annotated[int | None, typer.Option(help="this stage alone, as JSON")] = None,
    region: Annotated[int | None, typer.Option(help="this region with its PTX, as JSON")] = None,
    line: Annotated[
        int | None, typer.Option(help="the PTX of this line of the source, of all kernels")
    ] = None,
    json_: Annotated[
        bool, typer.Option("--json", help="everything, as JSON; a list of several kernels")
    ] = False,
) -> None:
    """Say what the kernels of a PTX FILE move and compute, a block and a trip of each loop."""
    shown = (stage is not None, region is not None, line is not None, json_)
    if sum(shown) > 1:
        raise ConfigError("--stage, --region, --line and --json are one at a time")
    one_kernel = stage is not None or region is not None
    try:
        module = read(text_of(existing(file)))
        if line is not None:
            typer.echo(line_text(module, line))
            return
        dags = _dags(module, kernel, warps, one_kernel)
        if stage is not None:
            said = json.dumps(region_views.stage_detail(dags[0], stage), indent=1)
        elif region is not None:
            said = json.dumps(
                region_views.region_detail(dags[0], region, EVERY, whole=True), indent=1
            )
        elif json_:
            texts = [region_views.to_json(dag) for dag in dags]
            said = texts[0] if len(texts) == 1 else "[\n" + ",\n".join(texts) + "\n]"
        else:
            said = "\n".join(map(ptx_text, dags)).rstrip()
    except NotPtx as error:
        raise ConfigError(f"{file}: {error}") from None
    typer.echo(said)


def text_of(file: Path) -> str:
    """The text of a file. Raises ConfigError when it is no text."""
    try:
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{file}: this is not PTX text ({reason(error)}); cuobjdump -ptx extracts it"
        ) from None


def _dags(module: Module, kernel: str, warps: int, one: bool) -> list[RegionDag]:
    """The kernels that are asked for; the device functions of a file without any."""
    if kernel or one:
        if not kernel and len(module.kernels) > 1:
            raise ConfigError(f"--kernel says which: there are {', '.join(module.kernels)}")
        return [analyse_function(module.function(kernel), module, warps)]
    found = [function for function in module.functions if function.entry] or module.functions
    return [analyse_function(function, module, warps) for function in found]
