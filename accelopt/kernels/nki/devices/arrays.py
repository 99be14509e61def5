"""Arrays on their way between two processes: a file, and what is said of it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from accelopt.sim import dtypes


def save_array(folder: Path, name: str, array: np.ndarray) -> dict[str, str]:
    """Writes `name`.npy and returns what `load_array` needs. NumPy's files do not know the formats of
    ml_dtypes: of those the bits are written, and the format is said."""
    told = {"file": f"{name}.npy"}
    if array.dtype.kind == "V":
        told["dtype"] = array.dtype.name
        array = np.ascontiguousarray(array).view(f"u{array.dtype.itemsize}")
    np.save(folder / told["file"], array, allow_pickle=False)
    return told


def load_array(folder: Path, told: Mapping[str, str]) -> np.ndarray:
    """The array that `save_array` wrote; ValueError says in one sentence what else was found."""
    path = folder / told["file"]
    if not path.is_file() or path.is_symlink():  # nor a pipe that nobody writes to
        raise ValueError(f"{path.name} is no file")
    try:
        with path.open("rb") as file:
            found: np.ndarray = np.lib.format.read_array(file, allow_pickle=False)
    except Exception as error:  # whatever a stranger's bytes make NumPy raise
        raise ValueError(f"{path.name} holds no array") from error
    if "dtype" not in told:
        return found
    name = str(told["dtype"])
    if name not in dtypes.FORMATS:
        raise ValueError(f"{path.name} is said to be of {name[:40]!r}, which is no format of NKI")
    try:
        return found.view(dtypes.FORMATS[name])
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path.name} holds {found.dtype}, not the bits of {name}") from error
