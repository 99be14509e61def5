"""Kernels that come with us to be tuned: their knobs, their problem, and a solution to start from.

A further one is one entry of `SCHEMAS`. A kernel of one's own needs none: its knobs are read from its text.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from accelopt.errors import ConfigError
from accelopt.evaluation import Case
from accelopt.kernels.gpu.bench.files.tracefiles import (
    Definition,
    DefinitionAxis,
    DefinitionTensor,
    InputSource,
    Trace,
    Workload,
)
from accelopt.kernels.gpu.cases import one_file, written_case
from accelopt.knob_space import KnobSpec, Parameter, Space

MARK = "# Knobs: "
"""Begins the first line of a shipped solution; its name in `SCHEMAS` follows."""

HEAD = """import torch
import triton
import triton.language as tl

"""

MATMUL = """
@triton.jit
def matmul_kernel(
    a, b, c, M, N, K, block_m: tl.constexpr, block_n: tl.constexpr, block_k: tl.constexpr
):
    rows = tl.program_id(0) * block_m + tl.arange(0, block_m)
    columns = tl.program_id(1) * block_n + tl.arange(0, block_n)
    total = tl.zeros((block_m, block_n), dtype=tl.float32)
    for k in range(0, K, block_k):
        inner = k + tl.arange(0, block_k)
        x_inside = (rows[:, None] < M) & (inner[None, :] < K)
        y_inside = (inner[:, None] < K) & (columns[None, :] < N)
        x = tl.load(a + rows[:, None] * K + inner[None, :], mask=x_inside, other=0.0)
        y = tl.load(b + inner[:, None] * N + columns[None, :], mask=y_inside, other=0.0)
        total = tl.dot(x, y, total)
    inside = (rows[:, None] < M) & (columns[None, :] < N)
    places = c + rows[:, None] * N + columns[None, :]
    tl.store(places, total.to(c.dtype.element_ty), mask=inside)


def run(a, b):
    KNOBS
    M, K = a.shape
    N = b.shape[1]
    c = torch.empty((M, N), device=a.device, dtype=a.dtype)
    grid = (triton.cdiv(M, block_m), triton.cdiv(N, block_n))
    matmul_kernel[grid](
        a, b, c, M, N, K, block_m, block_n, block_k, num_warps=num_warps, num_stages=num_stages
    )
    return c
"""

SOFTMAX = """
@triton.jit
def softmax_kernel(x, y, R, C, block_rows: tl.constexpr, vector_width: tl.constexpr):
    rows = tl.program_id(0) * block_rows + tl.arange(0, block_rows)
    largest = tl.full((block_rows,), float("-inf"), dtype=tl.float32)
    total = tl.zeros((block_rows,), dtype=tl.float32)
    for start in range(0, C, vector_width):
        columns = start + tl.arange(0, vector_width)
        inside = (rows[:, None] < R) & (columns[None, :] < C)
        tile = tl.load(
            x + rows[:, None] * C + columns[None, :], mask=inside, other=float("-inf")
        )
        higher = tl.maximum(largest, tl.max(tile, axis=1))
        total = total * tl.exp(largest - higher) + tl.sum(tl.exp(tile - higher[:, None]), axis=1)
        largest = higher
    for start in range(0, C, vector_width):
        columns = start + tl.arange(0, vector_width)
        inside = (rows[:, None] < R) & (columns[None, :] < C)
        tile = tl.load(x + rows[:, None] * C + columns[None, :], mask=inside, other=0.0)
        share = tl.exp(tile - largest[:, None]) / total[:, None]
        tl.store(y + rows[:, None] * C + columns[None, :], share, mask=inside)


def run(x):
    KNOBS
    C = x.shape[2]
    R = x.shape[0] * x.shape[1]
    y = torch.empty_like(x)
    grid = (triton.cdiv(R, block_rows),)
    softmax_kernel[grid](x, y, R, C, block_rows, vector_width, num_warps=num_warps)
    return y
"""


class Schema(NamedTuple):
    """A shipped kernel. `sizes` are its problem's axes where nobody says otherwise, `inputs` and
    `output` axes and dtype of its arrays, `reference` what it computes, by PyTorch. In `kernel` the line
    `KNOBS` is where its knobs get their values."""

    knobs: tuple[KnobSpec, ...]
    sizes: Mapping[str, int]
    inputs: Mapping[str, tuple[str, str]]
    output: tuple[str, str]
    reference: str
    kernel: str

    def space(self, name: str) -> Space:
        """The knobs of the entry of that name."""
        return Space(kernel=name, knobs=self.knobs)


def _knob(
    name: str, allowed: tuple[int, ...], default: int, multiple: int | None = None
) -> KnobSpec:
    return KnobSpec(name=name, type="int", allowed=allowed, default=default, multiple_of=multiple)


SCHEMAS = {
    "matmul": Schema(
        knobs=(
            _knob("block_m", (64, 128, 256), 128, 16),
            _knob("block_n", (64, 128, 256), 128, 16),
            _knob("block_k", (16, 32, 64), 32, 16),
            _knob("num_warps", (2, 4, 8), 4),
            _knob("num_stages", (1, 2, 3, 4), 2),
        ),
        sizes={"M": 2048, "N": 2048, "K": 2048},
        inputs={"a": ("M K", "float16"), "b": ("K N", "float16")},
        output=("M N", "float16"),
        reference="import torch\n\n\ndef run(a, b):\n    return torch.matmul(a, b)\n",
        kernel=MATMUL,
    ),
    "softmax": Schema(
        knobs=(
            _knob("block_rows", (1, 2, 4, 8, 16), 4),
            _knob("vector_width", (128, 256, 512, 1024), 1024, 128),
            _knob("num_warps", (1, 2, 4, 8), 4),
        ),
        sizes={"B": 32, "S": 2048, "C": 768},
        inputs={"x": ("B S C", "float32")},
        output=("B S C", "float32"),
        reference="import torch\n\n\ndef run(x):\n    return torch.softmax(x, dim=-1)\n",
        kernel=SOFTMAX,
    ),
}


def solution_text(name: str, values: Mapping[str, Parameter] | None = None) -> str:
    """The solution that is shipped under a name, with its knobs set."""
    schema = SCHEMAS[name]
    known = values or schema.space(name).default
    lines = "\n    ".join(f"{knob.name} = {known[knob.name]}" for knob in schema.knobs)
    return f"{MARK}{name}\n{HEAD}{schema.kernel.replace('KNOBS', lines)}"


def schema_of(text: str) -> str:
    """The name in `SCHEMAS` of a solution that was shipped; empty for any other text."""
    first = text.split("\n", 1)[0]
    name = first.removeprefix(MARK)
    return name if first.startswith(MARK) and name in SCHEMAS else ""


def shipped_case(name: str, sizes: Mapping[str, int], folder: Path) -> Case:
    """The problem of a shipped kernel at `sizes`, or its own where they say nothing, as files in
    `folder`. Raises ConfigError for axes that it does not have, and sizes below 1."""
    schema = SCHEMAS[name]
    for axis, size in sizes.items():
        if axis not in schema.sizes:
            raise ConfigError(f"{name} has no axis {axis!r}, but {', '.join(schema.sizes)}")
        if size < 1:
            raise ConfigError(f"{axis}={size} is no size")
    shape = {**schema.sizes, **sizes}
    definition = Definition(
        name=name,
        op_type="tuned",
        axes={axis: DefinitionAxis(type="var") for axis in shape},
        inputs={given: _tensor(*what) for given, what in schema.inputs.items()},
        outputs={"output": _tensor(*schema.output)},
        reference=schema.reference,
    )
    label = "_".join(f"{axis}{size}" for axis, size in shape.items())
    workload = Workload(
        axes=shape,
        inputs={given: InputSource(type="random") for given in schema.inputs},
        uuid=label,
    )
    solution = one_file(name, name, "AccelOpt", "main.py::run", solution_text(name))
    return written_case(definition, solution, Trace(definition=name, workload=workload), folder)


def _tensor(axes: str, dtype: str) -> DefinitionTensor:
    return DefinitionTensor(shape=axes.split(), dtype=dtype)
