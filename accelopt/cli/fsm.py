"""`accelopt fsm`: the two state machines of the strategy of that name."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from accelopt.fsm.diagram import MACHINES, write_diagram


def fsm(
    diagram: Annotated[bool, typer.Option("--diagram", help="draw both machines")] = False,
    out: Annotated[
        Path, typer.Option(help="the picture; Mermaid text where Graphviz is not installed")
    ] = Path("fsm.svg"),
) -> None:
    """Show what the manager's and the workers' states may lead to."""
    if diagram:
        typer.echo(f"Written: {write_diagram(out)}")
        return
    for name, (initial, transitions) in MACHINES.items():
        typer.echo(f"{name}, from {initial}")
        for state, following in transitions.items():
            typer.echo(f"  {state:20s} {', '.join(following)}")
