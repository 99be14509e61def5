"""Spec files: a kernel, its arguments in order, its launch, and what says that it is right.

    {"name": "add", "kernel": {"kernel_type": "cuda", "source_code": "...", "metadata": {},
      "io": {"args": [{"name": "x", "type": "tensor", "role": "input",
                       "tensor_spec": {"shape": [1024], "dtype": "float32",
                                       "init": {"kind": "randn", "seed": 1}}}, ...],
             "launch": {"grid": {"x": 4}, "block": {"x": 256}}}},
     "device_profile": {"gpu_name": "H200", "arch": "sm_90"},
     "reference": {"source": "def run(x, y): return x + y", "function": "run"}}

Rows are frozen; keys that are not known are kept as given.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from accelopt.errors import ConfigError
from accelopt.evaluation import faults
from accelopt.store import read_json

_DTYPES = {
    "float": "float32", "fp32": "float32", "f32": "float32", "double": "float64",
    "half": "float16", "fp16": "float16", "f16": "float16", "bf16": "bfloat16",
    "int": "int32", "long": "int64",
}  # fmt: skip


class OpenRow(BaseModel):
    """A frozen row; unknown keys are kept."""

    model_config = ConfigDict(frozen=True, extra="allow")


class Init(OpenRow):
    """How a tensor's values are drawn or counted; the same for the same seed."""

    kind: Literal["randn", "uniform", "zeros", "ones", "full", "arange"]
    mean: float = 0.0
    std: float = 1.0
    low: float = 0.0
    high: float = 1.0
    fill_value: float = 0.0
    start: float = 0.0
    step: float = 1.0
    seed: int = 0

    @property
    def constant(self) -> float | None:
        """The one value that all elements have; None where they differ."""
        return {"zeros": 0.0, "ones": 1.0, "full": self.fill_value}.get(self.kind)

    @property
    def drawn(self) -> bool:
        """Whether another seed gives other values."""
        return self.kind in ("randn", "uniform")


class Stored(OpenRow):
    """A tensor's bytes, in C order: base64, of zlib's output where `zlib` says so."""

    base64: str
    zlib: bool = False


class TensorSpec(OpenRow):
    """A tensor: its shape, the name of its dtype in NumPy or PyTorch, and its contents."""

    shape: tuple[int, ...]
    dtype: str
    init: Init | None = None
    data: Stored | None = None

    @field_validator("dtype")
    @classmethod
    def _plain(cls, name: str) -> str:
        plain = name.removeprefix("torch.").removeprefix("np.").lower()
        return _DTYPES.get(plain, plain)

    @field_validator("data", mode="before")
    @classmethod
    def _bare(cls, data: object) -> object:
        return {"base64": data} if isinstance(data, str) else data


class Argument(OpenRow):
    """One argument of a kernel. A tensor has a `tensor_spec`, anything else a `value`."""

    name: str
    type: Literal["tensor", "int", "float", "bool", "str"]
    role: Literal["input", "output", "inout"] = "input"
    value: int | float | bool | str | None = None
    tensor_spec: TensorSpec | None = None

    @model_validator(mode="after")
    def _whole(self) -> Argument:
        if self.type != "tensor":
            if self.value is None:
                raise ValueError(f"argument {self.name} has no value")
            return self
        if self.tensor_spec is None:
            raise ValueError(f"argument {self.name} is a tensor without tensor_spec")
        tensor = self.tensor_spec
        if self.role != "output" and tensor.init is None and tensor.data is None:
            raise ValueError(f"tensor {self.name} has neither init nor data")
        return self

    @property
    def is_tensor(self) -> bool:
        """Whether it is passed as a pointer."""
        return self.type == "tensor"

    @property
    def tensor(self) -> TensorSpec:
        """The tensor that it is."""
        assert self.tensor_spec is not None
        return self.tensor_spec

    @property
    def is_output(self) -> bool:
        """Whether the kernel's results stand in it."""
        return self.is_tensor and self.role != "input"

    @property
    def is_input(self) -> bool:
        """Whether its contents are given to the kernel, beyond one value everywhere."""
        if not self.is_tensor or self.role != "output":
            return self.is_tensor
        init = self.tensor.init
        return self.tensor.data is not None or (init is not None and init.constant is None)

    @property
    def filled(self) -> float | None:
        """The value everywhere in an output before the kernel runs; None where nothing is promised."""
        init = self.tensor.init
        return None if init is None else init.constant


class Dimensions(OpenRow):
    """Along x, y and z."""

    x: int = 1
    y: int = 1
    z: int = 1


class LaunchConfig(OpenRow):
    """Blocks of the grid, threads of a block, and bytes of dynamic shared memory."""

    grid: Dimensions = Dimensions()
    block: Dimensions = Dimensions()
    shared: int = 0

    @field_validator("grid", "block", mode="before")
    @classmethod
    def _listed(cls, given: object) -> object:
        if isinstance(given, (list, tuple)):
            return dict(zip("xyz", given, strict=False))
        return {"x": given} if isinstance(given, int) else given


class IOContract(OpenRow):
    """The arguments in the order of the kernel's parameters, and how it is launched."""

    args: tuple[Argument, ...]
    launch: LaunchConfig = LaunchConfig()

    @property
    def inputs(self) -> tuple[Argument, ...]:
        """The tensors whose contents are given."""
        return tuple(argument for argument in self.args if argument.is_input)

    @property
    def outputs(self) -> tuple[Argument, ...]:
        """The tensors in which results stand."""
        return tuple(argument for argument in self.args if argument.is_output)


class KernelText(OpenRow):
    """The kernel itself. `metadata` may name it (`kernel_name`) and its launch options."""

    kernel_type: Literal["triton", "cuda"]
    source_code: str
    io: IOContract
    metadata: dict[str, Any] = Field(default_factory=dict)

    @property
    def name(self) -> str:
        """The kernel's function; empty where the only one is meant."""
        return str(self.metadata.get("kernel_name", ""))


class ReferenceSpec(OpenRow):
    """What says that results are right: a Python function of the input tensors, in their order."""

    source: str = ""
    module: str = ""
    function: str = "run"
    rtol: float = 1e-2
    atol: float = 1e-2


class KernelSpec(OpenRow):
    """One kernel to be made faster. Without `reference`, its own outputs on the same inputs are right."""

    name: str
    kernel: KernelText
    device_profile: dict[str, Any] = Field(default_factory=dict)
    reference: ReferenceSpec | None = None

    @property
    def safe_name(self) -> str:
        """The name as a folder's."""
        return re.sub(r"[^A-Za-z0-9_.-]+", "_", self.name).strip("._") or "kernel"


def read_specs(path: Path) -> list[KernelSpec]:
    """The kernels of a spec file (one, a list, or `{"kernels": [...]}`), or of a folder of them.

    Raises ConfigError that names the file, and says what it lacks.
    """
    if path.is_dir():
        files = sorted(path.glob("*.json"))
        if not files:
            raise ConfigError(f"{path} holds no *.json")
        specs = [spec for file in files for spec in read_specs(file)]
    else:
        specs = [_spec(one, path) for one in _listed(path)]
    if not specs:
        raise ConfigError(f"{path} names no kernel")
    names = [spec.safe_name for spec in specs]
    if twice := [name for name in names if names.count(name) > 1]:
        raise ConfigError(f"{path}: two kernels are called {twice[0]}")
    return specs


def _listed(path: Path) -> list[object]:
    said = read_json(path)
    if isinstance(said, Mapping) and isinstance(said.get("kernels"), list):
        said = said["kernels"]
    return said if isinstance(said, list) else [said]


def _spec(said: object, path: Path) -> KernelSpec:
    if isinstance(said, Mapping) and isinstance(kernel := said.get("kernel"), Mapping):
        if "io" not in kernel and "invocation_example" in kernel:
            name = said.get("name", "?")
            raise ConfigError(
                f"{path}: {name} has an invocation_example and no io; say its arguments and launch "
                "under kernel.io"
            )
        spec = kernel.get("reference")
        said = {**said, "reference": said.get("reference") or spec}
    try:
        return KernelSpec.model_validate(said)
    except ValidationError as error:
        raise ConfigError(f"{path} is no spec file: {faults(error)}") from None
