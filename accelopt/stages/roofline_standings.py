"""How far kernels are from the roofline of their problem: from profile tables to standings."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from accelopt import measured
from accelopt.errors import ConfigError
from accelopt.kernels.nki.roofline import LeastTime, Standing, bound, standing
from accelopt.published import CandidateRow
from accelopt.stages.record_files import read_candidates, read_table, write_table

SIZE = re.compile(r"_([A-Z]+)(\d+)(?=_|$)")  # in a case's name: matmul_K5120_M4096_N12288


def peak_words(candidate: CandidateRow) -> str:
    """`40.1% of peak (memory)` for a profiled candidate, empty where the bound is not known."""
    limit = bound_of(candidate)
    if limit is None or candidate.profile is None:
        return ""
    return f"{limit.fraction(candidate.profile.latency):.1%} of peak ({limit.key})"


def bound_of(candidate: CandidateRow) -> LeastTime | None:
    """The roofline of a profiled candidate's problem, None where it is not known."""
    if candidate.profile is None:
        return None
    return bound(candidate.case.problem, candidate.case.values, candidate.profile.target)


def standings(profiles: Path | None, best: Path | None = None) -> list[Standing]:
    """The standing of every profiled case with a known bound.

    `profiles` is a profile_results.csv, None what was measured for NKIBench's published baselines, on
    trn1 (`accelopt/measured/`). `best` names what was reached: a table with `case_name` and
    `best_speedup` (or `speedup`), of which the largest counts; without it the baseline stands alone.
    """
    reached = _best_speedups(best) if best else {}
    found = []
    for row in _measured() if profiles is None else _profiled(profiles):
        speedup = reached.get(row.case_name, 1.0)
        best_ms = row.latency_ms / speedup
        place = standing(*row[:4], best_ms, row.target)
        if place is not None:
            found.append(place)
    return found


class _Row(NamedTuple):
    """A case and its baseline's latency."""

    problem: str
    case_name: str
    values: Mapping[str, Any]
    latency_ms: float
    target: str


def _profiled(path: Path) -> Iterator[_Row]:
    for candidate in read_candidates(path):
        case, profile = candidate.case, candidate.profile
        if profile is not None:
            yield _Row(case.problem, case.case_name, case.values, profile.latency, profile.target)


def _measured() -> Iterator[_Row]:
    for row in measured.rows("trn1_nkibench"):
        name = row["case_name"]
        values = {key: int(size) for key, size in SIZE.findall(name)}
        yield _Row(SIZE.sub("", name), name, values, float(row["latency"]), "trn1")


def _best_speedups(path: Path) -> dict[str, float]:
    reached: dict[str, float] = {}
    for row in read_table(path, ["case_name"]):
        if not {"best_speedup", "speedup"} & row.keys():
            raise ConfigError(f"{path} has neither a column best_speedup nor one speedup")
        text = row.get("best_speedup") or row.get("speedup") or ""
        try:
            speedup = float(text) if text else 0.0
        except ValueError as error:
            raise ConfigError(f"{path}: {text!r} is not a speedup") from error
        name = row.get("case_name", "")
        if speedup > 0:
            reached[name] = max(speedup, reached.get(name, speedup))
    return reached


def write_standings(path: Path, rows: Sequence[Standing]) -> None:
    """The published headroom table."""
    table = [{key: str(value) for key, value in row._asdict().items()} for row in rows]
    write_table(path, table, list(Standing._fields))
