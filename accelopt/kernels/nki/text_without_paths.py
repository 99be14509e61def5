"""Texts about a kernel without the places that differ from run to run."""

from __future__ import annotations

import re
from pathlib import Path

from accelopt.evaluation import Evaluation

KERNEL_FILE = "kernel.py"  # what every kernel's file is called in messages
ADDRESS = re.compile(r"0x[0-9a-f]{6,}")


def without_places(evaluation: Evaluation, path: Path) -> Evaluation:
    """`evaluation` without the folder of `path` and without addresses in its texts."""
    return evaluation.model_copy(
        update={
            "message": placeless(evaluation.message, path),
            "traceback": placeless(evaluation.traceback, path),
            "notes": tuple(placeless(note, path) for note in evaluation.notes),
        }
    )


def placeless(text: str, path: Path) -> str:
    """`text` without the folder of `path` and without addresses.

    What a fixer is told must be the same in every folder and every process, or a recording of its
    answers could not be found again.
    """
    for place in (str(path.resolve()), str(path)):
        text = text.replace(place, KERNEL_FILE)
    text = text.replace(f"{path.resolve().parent}/", "")  # of files that it imports
    return ADDRESS.sub("0x...", text.replace(path.name, KERNEL_FILE))
