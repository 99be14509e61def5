"""The problems of a FlashInfer-Trace folder as cases of a run: a definition, a workload, a solution.

A case's `values` carry the paths of its problem: `definition`, `workload`, and `solution`,
the one that the run started from. Its kernel is a solution file, or plain source.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path

from accelopt.errors import ConfigError
from accelopt.evaluation import Case, Profile
from accelopt.kernels.gpu.bench.files.tracefiles import (
    BuildSpec,
    Definition,
    Solution,
    SourceFile,
    Trace,
    read_json,
    read_workload,
    workload_stem,
    write_json,
)
from accelopt.store import content_key, read_text

COMPILED = ("cuda", "cpp")


class ProblemFiles:
    """The files behind one case, read once."""

    def __init__(self, values: Mapping[str, object]) -> None:
        try:
            self.definition_path = Path(str(values["definition"]))
            self.workload_path = Path(str(values["workload"]))
        except KeyError as missing:
            raise ConfigError(
                f"a case without {missing}: tables for --backend triton have the columns "
                "definition_path, solution_path, workload_path"
            ) from None
        solution = values.get("solution")
        self.solution_path = Path(str(solution)) if solution else None
        self.definition = read_json(Definition, self.definition_path)
        self.workload = read_workload(self.workload_path)

    @cached_property
    def template(self) -> Solution:
        """The solution that the run starts from; every kernel shares its build settings."""
        if self.solution_path is not None and self.solution_path.suffix == ".json":
            return read_json(Solution, self.solution_path)
        path = self.solution_path
        text = path.read_text() if path is not None and path.is_file() else "pass"
        return Solution(
            name="start",
            definition=self.definition.name,
            author="AccelOpt",
            spec=BuildSpec(language="triton", entry_point="main.py::run", target_hardware=["cuda"]),
            sources=[SourceFile(path="main.py", content=text)],
        )

    def solution(self, source: str) -> Solution:
        """`source` as a solution, named by its content."""
        made = self.template.with_source(source, f"accelopt_{content_key(source)[:16]}")
        return made.model_copy(update={"author": "AccelOpt"})

    def root(self, option: Path | None) -> Path:
        """The trace folder: the option, or the nearest folder above the workload that is one."""
        if option is not None:
            return option
        for folder in self.workload_path.resolve().parents:
            if (folder / "blob").is_dir() or (folder / "definitions").is_dir():
                return folder
        return self.workload_path.resolve().parent


def case_of(definition: Path, solution: Path, workload: Path) -> Case:
    """The case that the paths of a definition, a solution and a workload stand for."""
    trace = read_workload(workload)
    name = read_json(Solution, solution).name if solution.suffix == ".json" else solution.stem
    return Case(
        service_name=f"{workload_stem(trace)}_{name}",
        case_name=workload_stem(trace),
        problem=trace.definition,
        values={
            "definition": str(definition),
            "workload": str(workload),
            "solution": str(solution),
        },
        task=str(definition),
        kernel=str(solution),
    )


def written_case(definition: Definition, solution: Solution, workload: Trace, folder: Path) -> Case:
    """The case of a problem of our own making, whose three files are written into `folder`."""
    return case_of(
        write_json(definition, folder / "definition.json").resolve(),
        write_json(solution, folder / "solution.json").resolve(),
        write_json(workload, folder / "workload.json").resolve(),
    )


def one_file(
    name: str, definition: str, author: str, entry: str, text: str, language: str = "triton"
) -> Solution:
    """A solution of one file, which returns its outputs; `entry` is the file and the function in it."""
    return Solution(
        name=name,
        definition=definition,
        author=author,
        spec=BuildSpec(
            language=language,
            entry_point=entry,
            target_hardware=["cuda"],
            destination_passing_style=False,
        ),
        sources=[SourceFile(path=entry.partition("::")[0], content=text)],
    )


def source_of(case: Case) -> str:
    """The text of a case's kernel: of a solution's file, that of its entry point."""
    path = Path(case.kernel)
    return read_json(Solution, path).main_source if path.suffix == ".json" else read_text(path)


def language_of(solution: Path) -> str:
    """The entry of `LANGUAGES` for a solution's file: by its language, Triton for plain Python."""
    if solution.suffix == ".json" and read_json(Solution, solution).spec.language in COMPILED:
        return "cuda"
    return "triton"


def case_of_row(row: Mapping[str, str]) -> tuple[Case, Profile | None]:
    """A row of the published columns: definition_path, solution_path, workload_path, and more.

    The profile is in the `profile` column, or else in the trace at `trace_path`.
    """
    profile = None
    if row.get("profile"):
        profile = Profile.from_metadata(json.loads(row["profile"]))
    elif row.get("trace_path"):
        profile = profile_of(read_workload(Path(row["trace_path"])))
    paths = (Path(row[f"{kind}_path"]) for kind in ("definition", "solution", "workload"))
    return case_of(*paths), profile


def profile_of(trace: Trace) -> Profile | None:
    """The latency that a measured trace carries, by the package's timer; None unless it passed."""
    if not trace.passed or trace.evaluation is None or trace.evaluation.performance is None:
        return None
    latency = trace.evaluation.performance.latency_ms
    if not latency:
        return None
    return Profile(
        latency=latency,
        min_ms=latency,
        max_ms=latency,
        rel_diffs=0.0,
        metrics={"package_latency_ms": latency},
        target=trace.evaluation.environment.hardware,
        simulated=False,
    )


def describe_definition(definition: Definition, workload: Trace) -> str:
    """A definition as a proposer should see it: tensors with concrete shapes, then the reference."""
    lines = [f"# {definition.name} ({definition.op_type}), at the measured workload:"]
    for title, specs in (("inputs", definition.inputs), ("outputs", definition.outputs)):
        lines.append(f"# {title}:")
        for name, spec in specs.items():
            shape = definition.shape(spec, workload.workload)
            axes = "scalar" if shape is None else f"[{', '.join(spec.shape or [])}] = {list(shape)}"
            lines.append(f"#   {name}: {axes} {spec.dtype}")
    for constraint in definition.constraints or []:
        lines.append(f"# holds: {constraint}")
    return "\n".join([*lines, "", definition.reference])
