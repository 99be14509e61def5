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
    """The array that `save_array` wrote. Raises OSError, ValueError, TypeError, EOFError."""
    path = folder / told["file"]
    if not path.is_file() or path.is_symlink():  # nor a pipe that nobody writes to
        raise ValueError(f"{path.name} is no file")
    found: np.ndarray = np.load(path, allow_pickle=False)
    return found.view(dtypes.parse(told["dtype"])) if "dtype" in told else found
