"""The files of a FlashInfer-Trace folder, read and written without torch or flashinfer-bench.

Layout (FlashInfer-Bench 0.1.2 and the later one, which adds an author level to traces):

    definitions/<op_type>/<definition>.json       workloads/<op_type>/<definition>.jsonl
    solutions/[<author>/]<op_type>/<definition>/<solution>.json
    traces/[<author>/]<op_type>/<definition>.jsonl     blob/workloads/...

The models keep keys they do not know, so what others wrote survives a round trip. A file that
cannot be read is listed in `TraceFolder.problems` and costs nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from accelopt.errors import ConfigError
from accelopt.store import write_atomically

PASSED = "PASSED"


class TraceRow(BaseModel):
    """A frozen piece of the FlashInfer-Trace format; unknown keys are kept."""

    model_config = ConfigDict(frozen=True, extra="allow", ser_json_inf_nan="strings")


class DefinitionAxis(TraceRow):
    """A dimension: `const` carries its value, `var` gets it from the workload."""

    type: Literal["const", "var"]
    value: int | None = None


class DefinitionTensor(TraceRow):
    """An input or output: axis names, or None for a scalar, and a dtype name."""

    shape: list[str] | None
    dtype: str


class Definition(TraceRow):
    """What must be computed: axes, ordered inputs and outputs, and the PyTorch reference."""

    name: str
    op_type: str
    axes: dict[str, DefinitionAxis]
    inputs: dict[str, DefinitionTensor]
    outputs: dict[str, DefinitionTensor]
    reference: str
    constraints: list[str] | None = None

    def sizes(self, workload: Workload) -> dict[str, int]:
        """Every axis by name: the constants here and the variables of `workload`."""
        constants = {name: axis.value for name, axis in self.axes.items() if axis.value is not None}
        return {**constants, **workload.axes}

    def shape(self, spec: DefinitionTensor, workload: Workload) -> tuple[int, ...] | None:
        """The concrete shape of a tensor, or None for a scalar."""
        if spec.shape is None:
            return None
        sizes = self.sizes(workload)
        return tuple(sizes[axis] if axis in sizes else int(axis) for axis in spec.shape)


class InputSource(TraceRow):
    """Where one input comes from: `random`, `scalar` with a value, or a `safetensors` key.

    Ours: a random tensor may state how it is drawn, by `tensor`, a `TensorSpec` of `accelopt.contract.spec`.
    """

    type: Literal["random", "scalar", "safetensors"]
    value: float | int | bool | None = None
    path: str | None = None
    tensor_key: str | None = None
    tensor: dict[str, Any] | None = None


class Workload(TraceRow):
    """Values for the variable axes and sources for the inputs."""

    axes: dict[str, int]
    inputs: dict[str, InputSource]
    uuid: str


class BuildSpec(TraceRow):
    """How a solution is built and called. `destination_passing_style` None: not stated.

    Ours: with the binding `driver` the sources are a kernel alone, called with `arguments` (those of
    `accelopt.contract.spec`) and started as its own text says.
    """

    language: str
    binding: str | None = None
    arguments: list[dict[str, Any]] = Field(default_factory=list)
    entry_point: str = "main.py::run"
    target_hardware: list[str] = Field(default_factory=list)
    destination_passing_style: bool | None = None


class SourceFile(TraceRow):
    """One source file of a solution."""

    path: str
    content: str


class Solution(TraceRow):
    """Sources that claim to compute a definition."""

    name: str
    definition: str
    author: str
    spec: BuildSpec
    sources: list[SourceFile]
    description: str | None = None

    @property
    def main_source(self) -> str:
        """The text of the entry point's file."""
        entry = self.spec.entry_point.split("::")[0]
        for source in self.sources:
            if source.path == entry:
                return source.content
        raise ConfigError(f"solution {self.name} has no file {entry}, its entry point")

    def with_source(self, text: str, name: str) -> Solution:
        """The same solution under another name with another main source."""
        entry = self.spec.entry_point.split("::")[0]
        sources = [
            source.model_copy(update={"content": text}) if source.path == entry else source
            for source in self.sources
        ]
        return self.model_copy(update={"name": name, "sources": sources})


class Correctness(TraceRow):
    """Largest errors over all outputs and trials."""

    max_relative_error: float = 0.0
    max_absolute_error: float = 0.0
    extra: dict[str, Any] | None = None


class Performance(TraceRow):
    """Milliseconds by the package's timer; speedup is over the reference, 0 when unmeasured."""

    latency_ms: float = 0.0
    reference_latency_ms: float = 0.0
    speedup_factor: float = 0.0


class Environment(TraceRow):
    """Where a trace was measured."""

    hardware: str
    libs: dict[str, str] = Field(default_factory=dict)


class TraceEvaluation(TraceRow):
    """The package's verdict. `performance` exists only for PASSED."""

    status: str
    environment: Environment
    timestamp: str
    log: str = ""
    correctness: Correctness | None = None
    performance: Performance | None = None


class Trace(TraceRow):
    """A workload, and when `solution` is set the evaluation of that solution on it."""

    definition: str
    workload: Workload
    solution: str | None = None
    evaluation: TraceEvaluation | None = None

    @property
    def passed(self) -> bool:
        """Whether this is a measured trace with the status PASSED."""
        return self.evaluation is not None and self.evaluation.status == PASSED


Row = TypeVar("Row", bound=BaseModel)
Named = TypeVar("Named", Definition, Solution)


def read_json(model: type[Row], path: Path) -> Row:
    """One record from a JSON file. Raises ConfigError that names the file."""
    try:
        return model.model_validate_json(path.read_text())
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file") from None
    except ValidationError as error:
        raise ConfigError(f"{path}: not a {model.__name__}: {error}") from None


def read_workload(path: Path) -> Trace:
    """A workload file: a Trace as JSON, or a JSONL file whose first line is one."""
    text = path.read_text()
    if path.suffix == ".jsonl":
        text = text.strip().splitlines()[0]
    try:
        return Trace.model_validate_json(text)
    except ValidationError as error:
        raise ConfigError(f"{path}: not a workload: {error}") from None


def write_json(row: BaseModel, path: Path) -> Path:
    """Write one record with every key that was set, beside its place first and then renamed."""
    write_atomically(path, row.model_dump_json(indent=2, exclude_unset=True) + "\n")
    return path


def workload_stem(trace: Trace) -> str:
    """`<definition>_<first seven of the uuid>`: the published name of a workload file."""
    return f"{trace.definition}_{trace.workload.uuid[:7]}"


def trace_stem(trace: Trace, solution: str) -> str:
    """`<definition>_<uuid7>_<solution>`: the published name of a trace file."""
    return f"{workload_stem(trace)}_{solution}"


class TraceFolder:
    """A FlashInfer-Trace folder, read on demand.

    Of several files with one name inside, the one named so is kept, else the first; all are reported.
    """

    def __init__(self, root: Path) -> None:
        if not root.is_dir():
            raise ConfigError(f"{root}: no such FlashInfer-Trace folder")
        self.root = root
        self.problems: list[str] = []

    @cached_property
    def definitions(self) -> dict[str, Definition]:
        """Definition by name."""
        return self._by_name(Definition, "definitions")

    @cached_property
    def solutions(self) -> dict[str, Solution]:
        """Solution by name, over all definitions and authors."""
        return self._by_name(Solution, "solutions")

    @cached_property
    def workloads(self) -> dict[str, list[Trace]]:
        """Workloads by definition, in file order."""
        return self._by_definition("workloads")

    @cached_property
    def traces(self) -> dict[str, list[Trace]]:
        """Measured traces by definition, in file order; both layouts, JSON and JSONL files."""
        return self._by_definition("traces")

    def solutions_of(self, definition: str) -> list[Solution]:
        """The solutions of one definition, by name."""
        return [row for row in self.solutions.values() if row.definition == definition]

    def _by_name(self, model: type[Named], folder: str) -> dict[str, Named]:
        found: dict[str, Named] = {}
        for path in sorted((self.root / folder).rglob("*.json")):
            row = self._read(model, path, path.read_text())
            if row is None:
                continue
            if row.name in found:
                kept = "this file" if path.stem == row.name else "the other"
                self.problems.append(f"{path}: {row.name} is in another file, too; {kept} is kept")
            if row.name not in found or path.stem == row.name:
                found[row.name] = row
        return found

    def _by_definition(self, folder: str) -> dict[str, list[Trace]]:
        found: dict[str, list[Trace]] = {}
        for trace in self._lines(self.root / folder):
            found.setdefault(trace.definition, []).append(trace)
        return found

    def _lines(self, folder: Path) -> Iterator[Trace]:
        for path in sorted(folder.rglob("*.json*")):
            text = path.read_text()
            pieces: Iterable[str] = text.splitlines() if path.suffix == ".jsonl" else [text]
            for piece in pieces:
                if piece.strip():
                    trace = self._read(Trace, path, piece)
                    if trace is not None:
                        yield trace

    def _read(self, model: type[Row], path: Path, text: str) -> Row | None:
        try:
            return model.model_validate(json.loads(text))
        except (ValidationError, ValueError) as error:
            first = str(error).splitlines()[0]
            self.problems.append(f"{path}: not a {model.__name__}: {first}")
            return None
