"""Input tensors from a draw: the same in every process on the same kind of device.

Values are drawn as FlashInfer-Bench draws them (standard normal; integers in [-1024, 1024); 8-bit
floats clamped to 2) or spread otherwise (see `input_draws`), and always seeded, so that the candidate's
process and the referee's agree on inputs without exchanging them. A seed that the candidate learns
only when it must answer is secret. Every tensor that is made lies where none lay before.
"""

from __future__ import annotations

import math
import secrets
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from accelopt.contract.spec import Argument, Init, TensorSpec
from accelopt.contract.tensors import contents
from accelopt.kernels.gpu.bench.files import index_tensors
from accelopt.kernels.gpu.bench.files.input_draws import TOUCH, Draw
from accelopt.kernels.gpu.bench.files.tracefiles import Definition, Trace, Workload

if TYPE_CHECKING:
    import torch

INTEGER_RANGE = {"int8": (-128, 128)}
DEFAULT_INTEGER_RANGE = (-1024, 1024)
# A tensor begins at one of so many places of its memory, so its address says nothing.
SLACK_BYTES, ALIGNMENT = 1 << 20, 512


def torch_dtype(name: str) -> torch.dtype:
    """The torch dtype of a FlashInfer-Trace dtype name."""
    import torch

    if name == "float4_e2m1":
        name = "float4_e2m1fn_x2"
    found = getattr(torch, name, None)
    if not isinstance(found, torch.dtype):
        raise ValueError(f"this torch has no dtype {name}")
    return found


def placed(shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """An unfilled tensor at an address that nobody can foresee."""
    import torch

    count = int(np.prod(shape, dtype=np.int64))
    size = torch.empty((), dtype=dtype).element_size()
    memory = torch.empty(count * size + SLACK_BYTES, dtype=torch.uint8, device=device)
    start = secrets.randbelow(SLACK_BYTES // ALIGNMENT) * ALIGNMENT
    return memory[start : start + count * size].view(dtype).view(tuple(shape)).detach()


class InputFactory:
    """Makes and refills the inputs of one workload on one device."""

    def __init__(self, root: Path, definition: Definition, workload: Workload, device: str) -> None:
        import torch

        self.definition = definition
        self.workload = workload
        self.device = torch.device(device)
        self.root = root
        self._files: dict[str, torch.Tensor] = {}
        self._generated = self._load_files()
        self._stated = {
            name: TensorSpec.model_validate(source.tensor)
            for name, source in workload.inputs.items()
            if source.tensor is not None
        }
        self._files |= {
            name: self._constant(name, spec)
            for name, spec in self._stated.items()
            if spec.init is None or not spec.init.drawn
        }

    def _constant(self, name: str, spec: TensorSpec) -> torch.Tensor:
        """A tensor that is the same in every draw."""
        argument = Argument(name=name, type="tensor", tensor_spec=spec)
        made: torch.Tensor = contents(argument, str(self.device))
        return made

    def _load_files(self) -> bool:
        """Read the index files once; whether all of them are our own generator's."""
        generated = True
        for name, source in self.workload.inputs.items():
            if source.type != "safetensors" or source.path is None:
                continue
            from safetensors.torch import load_file

            path = self.root / source.path
            self._files[name] = load_file(str(path), str(self.device))[source.tensor_key or name]
            generated = generated and index_tensors.is_generated(path)
        return generated and bool(self._files)

    def of(self, row: dict[str, Any]) -> InputFactory:
        """The same of another workload, a row of the trace format."""
        workload = Trace.model_validate(row).workload
        return InputFactory(self.root, self.definition, workload, str(self.device))

    def make(self, draw: Draw) -> list[Any]:
        """New inputs in the definition's order: tensors, and Python scalars."""
        made = self.place(draw)
        self.fill(made, draw)
        return made

    def place(self, draw: Draw) -> list[Any]:
        """The same, with tensors whose contents are yet to come."""
        made: list[Any] = []
        for name, spec in self.definition.inputs.items():
            source = self.workload.inputs.get(name)
            shape = self.definition.shape(spec, self.workload)
            if shape is None or (source is not None and source.type == "scalar"):
                made.append(None)
            else:
                made.append(placed(shape, torch_dtype(spec.dtype), self.device))
        return made

    def _number(self, name: str, draw: Draw) -> float | int | bool | None:
        """A scalar: what the workload says or, drawn anew, a number near that of the same kind."""
        source = self.workload.inputs.get(name)
        random = np.random.default_rng([draw.seed, zlib.crc32(name.encode())])
        if source is None or source.type != "scalar":
            return float(random.standard_normal())
        value = source.value
        if not draw.scalars or value is None:
            return value
        if isinstance(value, bool):
            return bool(random.integers(2))
        if isinstance(value, int):  # sizes and counts: no more than there is
            return int(random.integers(-(-value // 2), value + 1)) if value > 1 else value
        return value * float(2.0 ** random.uniform(-1.0, 1.0))

    def fill(
        self, tensors: list[Any], draw: Draw, files: dict[str, torch.Tensor] | None = None
    ) -> None:
        """Give every tensor and number of a set the values of `draw`: the memory stays, no value does.

        With `files`, the draw's own from `files_of`, nothing waits for the device.
        """
        import torch

        generator = torch.Generator(device=self.device).manual_seed(draw.seed)
        files = self.files_of(draw) if files is None else files
        for index, (name, spec) in enumerate(self.definition.inputs.items()):
            tensor = tensors[index]
            if not isinstance(tensor, torch.Tensor):
                tensors[index] = self._number(name, draw)
                continue
            stated = self._stated.get(name)
            if name in files:
                tensor.copy_(files[name])
            elif stated is not None and stated.init is not None and stated.init.drawn:
                _fill_as_stated(tensor, stated.init, generator, draw)
            else:
                _fill_random(tensor, spec.dtype, generator, draw)

    def files_of(self, draw: Draw) -> dict[str, torch.Tensor]:
        """The tensors of a draw that come from files or stand for them, on the device."""
        import torch

        if not (draw.fresh_indices and self._generated):
            return self._files
        arrays = index_tensors.generate(
            self.definition, self.workload, draw.seed, draw.lengths, indices_only=True
        )
        fresh = {name: torch.from_numpy(a).to(self.device) for name, a in arrays.items()}
        return {**self._files, **fresh}


def _fill_random(tensor: torch.Tensor, dtype: str, generator: torch.Generator, draw: Draw) -> None:
    import torch

    if dtype in ("float32", "float16", "bfloat16"):
        tensor.normal_(generator=generator)
        _spread(tensor, draw, generator)
        if draw.touched and tensor.numel():
            place = np.random.default_rng([draw.seed, tensor.numel()]).integers(tensor.numel())
            tensor.view(-1)[int(place)] = TOUCH
    elif dtype.startswith("float8"):
        wide = torch.empty(tensor.shape, dtype=torch.float32, device=tensor.device)
        tensor.copy_(wide.normal_(generator=generator).clamp_(-2.0, 2.0))
    elif dtype == "bool":
        wide = torch.empty(tensor.shape, dtype=torch.int8, device=tensor.device)
        tensor.copy_(wide.random_(0, 2, generator=generator))
    elif dtype.startswith("int"):
        low, high = INTEGER_RANGE.get(dtype, DEFAULT_INTEGER_RANGE)
        tensor.random_(low, high, generator=generator)
    else:
        raise ValueError(f"no random values for dtype {dtype}")


def _fill_as_stated(
    tensor: torch.Tensor, init: Init, generator: torch.Generator, draw: Draw
) -> None:
    """Drawn as a contract says. What is standard normal there may be spread otherwise, too; what was
    given other bounds keeps them."""
    import torch

    wide = torch.empty(tensor.shape, dtype=torch.float32, device=tensor.device)
    if init.kind == "uniform":
        wide.uniform_(init.low, init.high, generator=generator)
    else:
        wide.normal_(init.mean, init.std, generator=generator)
        if (init.mean, init.std) == (0.0, 1.0):
            _spread(wide, draw, generator)
    tensor.copy_(wide)


def _spread(tensor: torch.Tensor, draw: Draw, generator: torch.Generator) -> None:
    """Turn standard normal values into what `draw` says, in place."""
    import torch

    values, tenth = draw.values, float(10.0 ** -np.random.default_rng(draw.seed).uniform(0.0, 1.0))
    if values == "small":
        tensor.mul_(1e-3 * tenth**0.3)
    elif values in ("large", "huge"):
        tensor.mul_((100.0 if values == "large" else draw.largest) * tenth)
    elif values == "shifted":
        tensor.mul_(0.1).add_(4.0)
    elif values == "skewed":
        tensor.abs_().pow_(3.0)
    elif values == "uneven" and tensor.dim() > 1:
        scales = torch.empty((tensor.shape[0],) + (1,) * (tensor.dim() - 1), device=tensor.device)
        tensor.mul_(scales.uniform_(-4.0, 2.0, generator=generator).exp2_().to(tensor.dtype))
    elif values == "spiked":
        # One value a row, anywhere in it and of any size, far above the others: whoever looks at a part
        # misses it, whoever does not subtract it from the others' exponents leaves float32's range.
        rows = tensor.view(-1, tensor.shape[-1]) if tensor.dim() else tensor.view(1, 1)
        where = torch.empty(rows.shape[0], dtype=torch.int64, device=tensor.device)
        where.random_(0, rows.shape[1], generator=generator)
        sizes = torch.empty((rows.shape[0], 1), dtype=torch.float32, device=tensor.device)
        sizes.uniform_(math.log(20.0), math.log(draw.largest), generator=generator).exp_()
        rows.scatter_(1, where[:, None], sizes.to(tensor.dtype))
