"""How far kernels are from the bound of their problem: from profile tables to standings."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from accelopt import measured
from accelopt.algorithm.least_work import ELEMENTWISE, RECURRENT
from accelopt.errors import ConfigError
from accelopt.hardware import TARGETS, TRN1
from accelopt.hardware.least_time import LeastTime, Work, least_time
from accelopt.kernels.nki.devices.simulated import SimulatedDevice
from accelopt.kernels.nki.problem_bound import ProblemBound
from accelopt.kernels.nki.requests import case_bound
from accelopt.script_file_columns import CandidateRow
from accelopt.stages.record_files import read_candidates, read_table, write_table

SIZES = re.compile(r"_[A-Z]+\d+(?=_|$)")  # in a case's name: matmul_K5120_M4096_N12288


class Standing(NamedTuple):
    """Where a case stands against its bound; fields as in the published headroom tables, latencies in
    milliseconds, percentages as fractions, `bound_key` one of `hardware.least_time.ASPECTS`."""

    problem: str
    case_name: str
    headroom: float
    baseline_percentage: float
    achieved_percentage: float
    best_speedup: float
    baseline_latency: float
    theoretical_peak_latency: float
    bound_key: str

    @property
    def possible(self) -> bool:
        """False for a result faster than physics: something measured it wrong."""
        return max(self.baseline_percentage, self.achieved_percentage) <= 1


def bound_words(candidate: CandidateRow) -> str:
    """`40.1% of bound (memory)` for a profiled candidate, empty where the bound is not known."""
    bound = bound_of(candidate)
    if bound is None or candidate.profile is None:
        return ""
    return f"{bound.least.fraction(candidate.profile.latency):.1%} of bound ({bound.least.key})"


def bound_of(candidate: CandidateRow) -> ProblemBound | None:
    """The bound of a profiled candidate's problem, None where it is not known."""
    if candidate.profile is None or candidate.profile.target not in TARGETS:
        return None
    return case_bound(candidate.case, SimulatedDevice(candidate.profile.target))


def standings(profiles: Path | None, best: Path | None = None) -> list[Standing]:
    """The standing of every profiled case with a known bound.

    `profiles` is a profile_results.csv, None what was measured for NKIBench's published baselines, on
    trn1 (`accelopt/measured/`). `best` names what was reached: a table with `case_name` and
    `best_speedup` (or `speedup`), of which the largest counts; without it the baseline stands alone.
    Raises ConfigError.
    """
    reached = _best_speedups(best) if best else {}
    found = []
    for name, least, ms in _measured() if profiles is None else _profiled(profiles):
        speedup = reached.get(name, 1.0)
        place = Standing(
            problem=SIZES.sub("", name),
            case_name=name,
            headroom=ms / least.latency_ms,
            baseline_percentage=least.fraction(ms),
            achieved_percentage=least.fraction(ms / speedup),
            best_speedup=speedup,
            baseline_latency=ms,
            theoretical_peak_latency=least.latency_ms,
            bound_key=least.key,
        )
        found.append(place)
    return found


def _profiled(path: Path) -> Iterator[tuple[str, LeastTime, float]]:
    for candidate in read_candidates(path):
        bound = bound_of(candidate)
        if bound is not None and candidate.profile is not None:
            yield candidate.case.case_name, bound.least, candidate.profile.latency


def _measured() -> Iterator[tuple[str, LeastTime, float]]:
    for row in measured.rows("trn1_nkibench"):
        yield row["case_name"], least_time(nkibench_work(row), TRN1), float(row["latency"])


def nkibench_work(row: Mapping[str, str]) -> Work:
    """What the problem of a row of `measured/trn1_nkibench.csv` takes at least."""
    moved = int(row["least_read_bytes"]), int(row["least_write_bytes"])
    elements = zip((ELEMENTWISE, RECURRENT), row["least_columns"].split(), strict=True)
    columns = tuple((lanes, int(number)) for lanes, number in elements)
    return Work(*moved, narrow_flops=int(row["least_flops"]), columns=columns)


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
