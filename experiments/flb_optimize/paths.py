"""Where these scripts find the trace folder, and where they put their files."""

from __future__ import annotations

import os
from argparse import ArgumentParser
from pathlib import Path

HERE = Path("experiments/flb_optimize")
STARTER = HERE / "starter_trace"
CHECKPOINTS = Path("experiments/flb_interface/checkpoints")
SELECTED = HERE / "selected_traces_triton.jsonl"


def add_folder_option(parser: ArgumentParser) -> None:
    """`--trace_folder`, else $FLASHINFER_TRACE, else the starter set."""
    default = Path(os.environ.get("FLASHINFER_TRACE") or STARTER)
    parser.add_argument("--trace_folder", type=Path, default=default)
