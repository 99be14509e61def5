"""`accelopt serve`: a bench for coding agents, over the Model Context Protocol."""

from __future__ import annotations

import asyncio
import secrets
import shutil
from pathlib import Path
from typing import Annotated

import typer

from accelopt.api import config_of, own_kernel
from accelopt.bench.folder_setup import (
    MadeFolder,
    make_folder,
    open_bench,
    read_folder,
    session_folder,
)
from accelopt.bench.server import required_mcp, serve_http, serve_stdio
from accelopt.cli import kernel_file
from accelopt.cli.options import HELP
from accelopt.errors import ConfigError
from accelopt.kernels.nki.default_target import checked_front_end, default_target, dialect_of_file
from accelopt.stages.config import Config, Options
from accelopt.store import read_text

PORTS = 1 << 16


def serve(
    path: Annotated[
        Path, typer.Argument(help="the folder of a bench; with --init the kernel's file")
    ],
    init: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="make this folder for a kernel, and end")
    ] = None,
    reference: kernel_file.ReferenceOption = None,
    target: kernel_file.TargetOption = None,
    compiler: kernel_file.CompilerOption = "",
    lnc: Annotated[int, HELP["lnc"]] = 1,
    machine: kernel_file.MachineOption = None,
    rel_tol: kernel_file.RelTol = None,
    precision: Annotated[str, HELP["precision"]] = "float32",
    database: Annotated[
        str | None,
        typer.Option(metavar="URL", help="what other runs learned is recalled from there"),
    ] = None,
    workers: Annotated[int, HELP["workers"]] = 0,
    http: Annotated[
        int | None,
        typer.Option(metavar="PORT", min=0, help="serve HTTP on loopback, not stdio"),
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option(help="holds the token for --http; without it one is made and said"),
    ] = None,
) -> None:
    """Let a coding agent work on a kernel: tools over MCP in a folder that --init makes."""
    if init is not None:
        if reference is None:
            raise ConfigError("--reference is needed: the NumPy module that says what to compute")
        case = own_kernel(path, reference)
        options = Options(
            target=target,
            machine=machine,
            compiler=checked_front_end(compiler, dialect_of_file(path)),
            lnc=lnc,
            rel_tol=rel_tol,
            precision=precision,
            database=database,
            workers=workers,
        ).at(default_target(path))
        with kernel_file.naming(path, reference):
            new = not init.exists()
            made = make_folder(init, case, options)
            try:
                with session_folder(made.state) as session:
                    begins = asyncio.run(_start(init, made, config_of(made.options, session)))
            except BaseException:  # the same command, with a kernel that was mended, works then
                for one in (*init.iterdir(), *[init] * new):
                    shutil.rmtree(one) if one.is_dir() else one.unlink()
                raise
        typer.echo(
            f"{init}: the kernel takes {begins}; open the folder with a coding agent, "
            "which reads AGENTS.md and .mcp.json there"
        )
        return
    required_mcp()
    if http is not None and http not in range(PORTS):
        raise ConfigError(f"--http {http}: ports are below {PORTS}")
    made = read_folder(path)
    token = read_text(token_file).strip() if token_file else secrets.token_urlsafe(32)
    if not token:
        raise ConfigError(f"{token_file} holds no token")
    with session_folder(made.state) as session:
        options = made.options._replace(warm_start=made.options.database is not None)
        bench = open_bench(path, made, config_of(options, session))
        if http is None:
            asyncio.run(serve_stdio(bench))
            return

        def ready(address: str) -> None:
            said = f" with the header Authorization: Bearer {token}" if token_file is None else ""
            typer.echo(f"{address}{said}", err=True)

        asyncio.run(serve_http(bench, http, token, ready))


async def _start(folder: Path, made: MadeFolder, config: Config) -> str:
    """Judges the start and writes the files of the folder; says what it takes. Raises ConfigError for
    a start that is not right."""
    async with open_bench(folder, made, config) as bench:
        return bench.begins
