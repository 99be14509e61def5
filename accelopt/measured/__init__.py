"""What others have measured and published: latencies of kernels on trn1 and trn2, as CSV files.

| file | what | where it was published |
|---|---|---|
| `trn1_nkibench.csv` | fourteen kernels with all counters | zhang677/AccelOpt |
| `trn1_tutorials.csv` | fifteen timings | the SDK's matmul and mamba tutorials, 2.26.1 |
| `trn1_variants.csv` | versions of a layernorm and a conv1d, P99 of ten runs | ucb-bar/autocomp |
| `trn2_instructions.csv` | kinds of instructions, spacings, packets and what comes before them, windows of eight profiles of attention | allenkchau/trainium-kernel-fusion |
| `trn2_kernels.csv` | versions of eight problems, shares of the engines; its p50, which is half of what a profile says | Jerry2423/kda-for-trainium |
| `trn2_public.csv` | settings and kernels of six projects, each with its own clock (`measured_how`); empty where the compiler refused, with the `error` | the repository in each row |

The columns `least_...` of the first are ours: the work of each problem, as `algorithm.least_work` counts it.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path

from accelopt.tables import packaged_table

FILES = (
    "trn1_nkibench",
    "trn1_tutorials",
    "trn1_variants",
    "trn2_instructions",
    "trn2_kernels",
    "trn2_public",
)
PUBLIC = FILES[-1]
"""The file whose rows `accelopt export --measured` writes."""


def add_row(table: Path, name: str, row: Mapping[str, object]) -> None:
    """Adds a row to a file of the columns of `name`, which is made where there is none. Raises ValueError for
    one that has others."""
    columns = list(rows(name)[0])
    before = table.read_text(encoding="utf-8") if table.exists() else ""
    if before and before.splitlines()[0] != ",".join(columns):
        raise ValueError(f"it has not the columns of {name}.csv")
    with table.open("a", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        if not before:
            writer.writeheader()
        writer.writerow(row)


def rows(name: str) -> list[dict[str, str]]:
    """The rows of one of the files, by column; ValueError for a name that is none."""
    if name not in FILES:
        raise ValueError(f"no measured data {name!r}; there are {', '.join(FILES)}")
    return packaged_table(f"measured/{name}.csv")
