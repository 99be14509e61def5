"""Collecting: from a benchmark folder to the table of candidates that a run starts from."""

from __future__ import annotations

from collections.abc import Iterable

from accelopt.evaluation import Case, to_json
from accelopt.kernels.nki import benchmark

COLLECTED_COLUMNS = tuple("problem values case_id task kernel case_name service_name".split())


def collected_rows(cases: Iterable[Case]) -> list[dict[str, str]]:
    """The published columns of each case; further implementations of a case get further numbers."""
    rows: list[dict[str, str]] = []
    for case in cases:
        earlier = sum(1 for row in rows if row["case_name"] == case.case_name)
        service = (
            benchmark.init_service_name(case) if not earlier else f"{case.case_name}_ID{earlier}"
        )
        rows.append(
            {
                "problem": case.problem,
                "values": to_json(case.values),
                "case_id": case.case_id,
                "task": case.task,
                "kernel": case.kernel,
                "case_name": case.case_name,
                "service_name": service,
            }
        )
    return rows
