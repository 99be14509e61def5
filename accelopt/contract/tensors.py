"""Tensors of a contract's arguments: the same values for the same seed, on any machine.

Values are NumPy's; `device` "numpy" gives arrays, any other name PyTorch tensors there.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np

from accelopt.contract.spec import Argument, Init, Stored, TensorSpec
from accelopt.errors import ConfigError

NUMPY = "numpy"


def dtype_of(name: str) -> np.dtype[Any]:
    """NumPy's dtype of a name, those of ml_dtypes included. Raises ConfigError for another name."""
    try:
        return np.dtype(getattr(ml_dtypes, name, name))
    except TypeError:
        raise ConfigError(f"there is no dtype {name!r}") from None


def contents(argument: Argument, device: str = NUMPY) -> Any:
    """The tensor that an argument is. An output of which nothing is promised is full of NaN, or of the largest value
    of an integer dtype: no memory is left as it was found."""
    return _on(device, _contents(argument))


def decode(data: TensorSpec | Mapping[str, Any]) -> np.ndarray[Any, Any]:
    """The array of a `tensor_spec` with data. Raises ConfigError for bytes that are not so many elements."""
    spec = data if isinstance(data, TensorSpec) else TensorSpec.model_validate(data)
    assert spec.data is not None
    dtype, count = dtype_of(spec.dtype), int(np.prod(spec.shape, dtype=np.int64))
    raw = _bytes(spec.data)
    if len(raw) != count * dtype.itemsize:
        raise ConfigError(
            f"data of {len(raw)} bytes for a {spec.dtype} tensor of shape {list(spec.shape)}, which "
            f"has {count * dtype.itemsize}"
        )
    array: np.ndarray[Any, Any] = np.frombuffer(raw, dtype=dtype).reshape(spec.shape).copy()
    return array


def _bytes(stored: Stored) -> bytes:
    try:
        raw = base64.b64decode(stored.base64, validate=True)
        return zlib.decompress(raw) if stored.zlib else raw
    except (ValueError, zlib.error) as error:
        raise ConfigError(f"data that cannot be decoded: {error}") from None


def drawn(init: Init, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """The values that an `init` stands for."""
    generator = np.random.default_rng(init.seed)
    wide: np.ndarray[Any, Any]
    if init.kind == "randn":
        wide = init.mean + init.std * generator.standard_normal(shape)
    elif init.kind == "uniform":
        wide = generator.uniform(init.low, init.high, shape)
    elif init.kind == "arange":
        count = int(np.prod(shape, dtype=np.int64))
        wide = (init.start + init.step * np.arange(count)).reshape(shape)
    else:
        wide = np.full(shape, init.constant)
    return wide.astype(dtype)


def _contents(argument: Argument) -> np.ndarray[Any, Any]:
    spec = argument.tensor
    dtype = dtype_of(spec.dtype)
    if spec.data is not None:
        return decode(spec)
    if spec.init is not None:
        return drawn(spec.init, spec.shape, dtype)
    poison = np.iinfo(dtype).max if dtype.kind in "iu" else dtype.kind != "b" and float("nan")
    return np.full(spec.shape, poison).astype(dtype)


def _on(device: str, array: np.ndarray[Any, Any]) -> Any:
    if device == NUMPY:
        return array
    import torch

    raw = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    made = torch.from_numpy(raw.copy()).view(getattr(torch, array.dtype.name))
    return made.reshape(array.shape).to(device)
