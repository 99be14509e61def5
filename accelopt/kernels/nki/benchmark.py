"""NKIBench and every folder of its form: `summary.json` to Cases, case and service names."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from pydantic import ValidationError

from accelopt.errors import ConfigError, reason
from accelopt.evaluation import REL_TOL, Case, case_name, faults
from accelopt.store import read_json

INITIAL_SERVICE_SUFFIX = "_ID0"

MAMBA_REL_TOL = 3e-5  # the one family of problems with a wider bound than `REL_TOL`


def get_case_name(problem: str, values: dict[str, int]) -> str:
    """The published name of a case: `matmul_K5120_M4096_N12288`."""
    return case_name(problem, values)


def init_service_name(case: Case) -> str:
    """The service name of a case's starting kernel: its case name and `_ID0`."""
    return case.case_name + INITIAL_SERVICE_SUFFIX


def relative_tolerance(problem: str) -> float:
    """The published bound of the relative L2 error for `problem`."""
    return MAMBA_REL_TOL if "mamba" in problem else REL_TOL


class Benchmark(NamedTuple):
    """What a folder holds: the cases that can be used, and a sentence on each entry that cannot."""

    cases: tuple[Case, ...]
    broken: tuple[str, ...]


def summary_path(base: Path | str) -> Path:
    """The index of a checkout or of a benchmark folder: `summary.json`, or `NKIBench/summary.json`."""
    base = Path(base)
    if base.suffix == ".json":
        return base
    for candidate in (base / "NKIBench" / "summary.json", base / "summary.json"):
        if candidate.is_file():
            return candidate
    raise ConfigError(f"no NKIBench/summary.json or summary.json under {base}")


def read_benchmark(path: Path | str) -> Benchmark:
    """The benchmark at `path`: a `summary.json`, its folder, or the checkout that holds NKIBench.

    File names in the index are relative to the index. A broken entry is reported and left out.
    Raises ConfigError when there is no index, or it is not a JSON object.
    """
    index = summary_path(path)
    summary = read_json(index)
    if not isinstance(summary, dict):
        raise ConfigError(f"{index} is not a JSON object of problems")
    cases: list[Case] = []
    broken: list[str] = []
    for found in _entries(summary, index.parent):
        if isinstance(found, Case):
            cases.append(found)
        else:
            broken.append(found)
    return Benchmark(tuple(cases), tuple(broken))


def _entries(summary: dict[str, object], folder: Path) -> Iterator[Case | str]:
    """Each implementation as a Case, or as the sentence that says why it is not one."""
    for problem, description in summary.items():
        cases = description.get("cases") if isinstance(description, dict) else None
        if not isinstance(cases, dict):
            yield f"{problem}: no object `cases`"
            continue
        for case_id, case in cases.items():
            name = f"{problem}, case {case_id}"
            implementations = case.get("impls") if isinstance(case, dict) else None
            if not isinstance(implementations, list) or not implementations:
                yield f"{name}: no list `impls`"
                continue
            for implementation in implementations:
                yield _case(name, problem, str(case_id), case.get("values"), implementation, folder)


def _case(
    name: str, problem: str, case_id: str, values: object, implementation: object, folder: Path
) -> Case | str:
    if not isinstance(values, dict) or not all(
        isinstance(value, int) and not isinstance(value, bool) for value in values.values()
    ):
        return f"{name}: `values` is not an object of whole numbers"
    paths: dict[str, str] = {}
    for key in ("task", "kernel"):
        relative = implementation.get(key) if isinstance(implementation, dict) else None
        if not isinstance(relative, str):
            return f"{name}: no path `{key}`"
        try:
            path = (folder / relative).resolve()
            there = path.is_file()
        except (OSError, ValueError) as error:  # a NUL, or longer than a name may be
            return f"{name}: `{key}` is no path: {reason(error)}"
        if not there:
            return f"{name}: `{key}` {path} is not a file"
        paths[key] = str(path)
    try:
        return Case(problem=problem, case_id=case_id, values=values, **paths)
    except ValidationError as error:
        return f"{name}: {faults(error)}"
