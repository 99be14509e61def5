"""Options that `run` and `optimize` share, with their help texts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

ModelFile = Annotated[
    Path | None, typer.Option(help="model configuration; without it no model is used")
]
Iterations = Annotated[int, typer.Option(help="T")]
BeamWidth = Annotated[int, typer.Option(help="B, kernels kept")]
Plans = Annotated[int, typer.Option(help="N, plans for each kernel")]
Samples = Annotated[int, typer.Option(help="K, implementations of each plan")]
FixerSteps = Annotated[int, typer.Option(help="F, repair rounds of a sample")]
Tools = Annotated[int, typer.Option(help="tool calls an executor may make for one answer")]
Target = Annotated[str, typer.Option(help="trn1 or trn2")]
Workers = Annotated[int, typer.Option(help="evaluations at a time; 0: one for each CPU")]
MaxDollars = Annotated[float | None, typer.Option(help="stop in good order there")]
MaxTokens = Annotated[int | None, typer.Option(help="stop in good order there")]
Experiences = Annotated[Path | None, typer.Option(help="start from the memory of another run")]
Replay = Annotated[Path | None, typer.Option(help="answer from this run's journal")]
Logfire = Annotated[bool, typer.Option("--logfire", help="trace model calls with logfire")]
