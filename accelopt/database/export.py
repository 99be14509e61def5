"""The database's kernels for other tools: one table, or a folder of FlashInfer traces."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from accelopt.database.opening import Database
from accelopt.database.queries import everything
from accelopt.errors import ConfigError, MissingExtra


def export_to(path: Path, database: Database) -> str:
    """Every verdict as a row of a `.parquet` or `.csv` file; what was written, in words.

    Raises ConfigError for another ending, MissingExtra where pyarrow is needed and absent.
    """
    table = pd.DataFrame(list(everything(database)))
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        try:
            table.to_parquet(path, index=False)
        except ImportError:
            raise MissingExtra("pyarrow", "database") from None
    elif path.suffix == ".csv":
        table.to_csv(path, index=False)
    else:
        raise ConfigError(f"{path} is no table: name a file that ends in .parquet or .csv")
    return f"{len(table)} verdicts"
