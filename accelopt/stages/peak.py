"""How far kernels are from the roofline of their problem: from profile tables to standings."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from accelopt.errors import ConfigError
from accelopt.kernels.nki.roofline import Standing, bound, standing
from accelopt.published import Candidate
from accelopt.stages.tables import read_candidates, read_table, write_table


def peak_words(candidate: Candidate) -> str:
    """`40.1% of peak (memory)` for a profiled candidate, empty where the bound is not known."""
    if candidate.profile is None:
        return ""
    limit = bound(candidate.case.problem, candidate.case.values, candidate.profile.target)
    if limit is None:
        return ""
    return f"{limit.fraction(candidate.profile.latency):.1%} of peak ({limit.key})"


def standings(profiles: Path, best: Path | None = None) -> list[Standing]:
    """The standing of every profiled case with a known bound.

    `profiles` is a profile_results.csv. `best` names what was reached: a table with `case_name` and
    `best_speedup` (or `speedup`), of which the largest counts; without it the baseline stands alone.
    """
    reached = _best_speedups(best) if best else {}
    found = []
    for candidate in read_candidates(profiles):
        profile = candidate.profile
        if profile is None:
            continue
        speedup = reached.get(candidate.case.case_name, 1.0)
        place = standing(
            candidate.case.problem,
            candidate.case.case_name,
            candidate.case.values,
            profile.latency,
            profile.latency / speedup,
            profile.target,
        )
        if place is not None:
            found.append(place)
    return found


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
