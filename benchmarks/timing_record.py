"""What `timing_accuracy.py --record` found, so that its tables can be made from this repository alone.

The kernels that were measured are others' and not part of it. What is: our predictions for them and how
much each fitted constant changes a prediction, one file a generation, with the name of the model that
made them. Where the model of today is another one, the tables say so.
"""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import accelopt

FOLDER = Path(__file__).parent / "predicted"
MODEL_ROOMS = ("sim", "hardware")
COLUMNS = (
    "source", "family", "kernel", "versions_of", "measured_ms", "first_ms", "predicted_ms", "model"
)  # fmt: skip


class Recorded(NamedTuple):
    """One kernel's prediction; `changes` is d log(predicted) / d log(constant) by the constant's name,
    empty where it was not taken. The rest as in `timing_corpus.Measured`."""

    source: str
    family: str
    kernel: str
    versions_of: str
    measured_ms: float
    first_ms: float | None
    predicted_ms: float
    model: str
    changes: dict[str, float]


def model_name() -> str:
    """A name for the text of the simulated core and its constants: another text, another name."""
    root = Path(accelopt.__file__).parent
    files = (path for room in MODEL_ROOMS for path in (root / room).rglob("*.py"))
    digest = hashlib.sha256()
    for path in sorted(files):
        digest.update(str(path.relative_to(root)).encode() + path.read_bytes())
    return digest.hexdigest()[:12]


def write_record(target: str, rows: Sequence[Recorded]) -> Path:
    """The file of a generation, written anew."""
    path = FOLDER / f"{target}.csv"
    path.parent.mkdir(exist_ok=True)
    constants = list(dict.fromkeys(name for row in rows for name in row.changes))
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([*COLUMNS, *constants])
        for row in rows:
            changes = [f"{row.changes[name]:.4g}" if row.changes else "" for name in constants]
            first = "" if row.first_ms is None else f"{row.first_ms:.7g}"
            times = f"{row.measured_ms:.7g}", first, f"{row.predicted_ms:.7g}"
            kernel = row.source, row.family, row.kernel, row.versions_of
            writer.writerow([*kernel, *times, row.model, *changes])
    return path


def read_record(target: str) -> list[Recorded]:
    """What the file of a generation holds; nothing where there is none."""
    path = FOLDER / f"{target}.csv"
    if not path.is_file():
        return []
    with path.open(newline="") as file:
        return [
            Recorded(
                row["source"], row["family"], row["kernel"], row["versions_of"], float(row["measured_ms"]),
                float(row["first_ms"]) if row["first_ms"] else None,
                float(row["predicted_ms"]), row["model"],
                {name: float(text) for name, text in row.items() if name not in COLUMNS and text},
            )
            for row in csv.DictReader(file)
        ]  # fmt: skip
