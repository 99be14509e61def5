"""Tensors of a contract's arguments: the same values for the same seed, on any machine.

Values are NumPy's; `device` "numpy" gives arrays, any other name PyTorch tensors there.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from accelopt.contract.spec import Argument, Init, IOContract, LaunchConfig, Stored, TensorSpec
from accelopt.errors import ConfigError

NUMPY = "numpy"
SMALL_BYTES = 1 << 12  # below which compressing does not pay
_SCALARS = {bool: "bool", int: "int", float: "float", str: "str"}


def dtype_of(name: str) -> np.dtype[Any]:
    """NumPy's dtype of a name, those of ml_dtypes included. Raises ConfigError for another name."""
    try:
        return np.dtype(getattr(ml_dtypes, name, name))
    except TypeError:
        raise ConfigError(f"there is no dtype {name!r}") from None


class IOContractManager:
    """Makes the arguments of a kernel and takes its outputs from them."""

    def generate_inputs(self, io: IOContract, device: str = NUMPY) -> list[Any]:
        """The arguments in their order. An output of which nothing is promised is full of NaN, or of
        the largest value of an integer dtype: no memory is left as it was found."""
        return [
            _on(device, _contents(argument)) if argument.is_tensor else argument.value
            for argument in io.args
        ]

    def create_io_contract(
        self,
        inputs: Sequence[Any],
        output_indices: Collection[int],
        inout_indices: Collection[int] = (),
        launch_config: LaunchConfig | Mapping[str, Any] | None = None,
        arg_names: Sequence[str] | None = None,
    ) -> IOContract:
        """The contract of these arguments, with the contents of tensors kept as data."""
        names = arg_names or [f"arg{place}" for place in range(len(inputs))]
        args = []
        for place, (name, value) in enumerate(zip(names, inputs, strict=True)):
            role = "output" if place in output_indices else "input"
            role = "inout" if place in inout_indices else role
            if type(value) in _SCALARS:
                said: dict[str, Any] = {"type": _SCALARS[type(value)], "value": value}
            else:
                array = _array(value)
                kept = (
                    {"shape": array.shape, "dtype": array.dtype.name}
                    if role == "output"
                    else encode(array)
                )
                said = {"type": "tensor", "tensor_spec": kept}
            args.append(Argument.model_validate({"name": name, "role": role, **said}))
        launch = launch_config or LaunchConfig()
        if not isinstance(launch, LaunchConfig):
            launch = LaunchConfig.model_validate(launch)
        return IOContract(args=tuple(args), launch=launch)

    def extract_outputs(self, inputs: Sequence[Any], io: IOContract) -> Any:
        """Of the arguments those that hold results: None, one, or a tuple."""
        found = tuple(
            value for value, argument in zip(inputs, io.args, strict=True) if argument.is_output
        )
        return (found[0] if len(found) == 1 else found) if found else None


def encode(array: np.ndarray[Any, Any]) -> dict[str, Any]:
    """An array as a `tensor_spec`: shape, dtype, and its bytes."""
    raw = np.ascontiguousarray(array).tobytes()
    packed = zlib.compress(raw) if len(raw) > SMALL_BYTES else raw
    smaller = len(packed) < len(raw)
    stored = {"base64": base64.b64encode(packed if smaller else raw).decode(), "zlib": smaller}
    return {"shape": list(array.shape), "dtype": array.dtype.name, "data": stored}


def decode(data: TensorSpec | Mapping[str, Any]) -> np.ndarray[Any, Any]:
    """The array that `encode` made it of. Raises ConfigError for bytes that are not so many elements."""
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


def _array(value: Any) -> np.ndarray[Any, Any]:
    if not hasattr(value, "detach"):
        return np.asarray(value)
    tensor = value.detach().cpu().contiguous()
    name = str(tensor.dtype).removeprefix("torch.")
    import torch

    raw = tensor.reshape(-1).view(torch.uint8).numpy()
    flat: np.ndarray[Any, Any] = np.frombuffer(raw.tobytes(), dtype=dtype_of(name)).copy()
    return flat.reshape(tuple(tensor.shape))


def _on(device: str, array: np.ndarray[Any, Any]) -> Any:
    if device == NUMPY:
        return array
    import torch

    raw = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    made = torch.from_numpy(raw.copy()).view(getattr(torch, array.dtype.name))
    return made.reshape(array.shape).to(device)
