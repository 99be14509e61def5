"""Where these scripts find the trace folder, and where they put their files."""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser
from pathlib import Path

# The scripts import this first, and so run from a checkout that is not installed.
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

HERE = Path("experiments/flb_optimize")
STARTER = HERE / "starter_trace"
CHECKPOINTS = Path("experiments/flb_interface/checkpoints")
SELECTED = HERE / "selected_traces_triton.jsonl"


def add_folder_option(parser: ArgumentParser) -> None:
    """`--trace_folder`, else $FLASHINFER_TRACE, else the starter set."""
    default = Path(os.environ.get("FLASHINFER_TRACE") or STARTER)
    parser.add_argument("--trace_folder", type=Path, default=default)
