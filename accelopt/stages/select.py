"""Selection: from an executor's results to the kernels of the next iteration, as files."""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from accelopt.kernel_source import fingerprint
from accelopt.published import Candidate, ServiceResult
from accelopt.search.selection import (
    PARENT,
    Selected,
    Selection,
    select_elitist,
    select_published,
)
from accelopt.store import write_atomically

CANDIDATE_COLUMNS = tuple("service_name task kernel problem values plan_id case_name".split())
SELECTIONS: dict[str, Selection] = {
    "elitist": partial(select_elitist, fingerprint=fingerprint),
    "published": select_published,
}


def select(results: Sequence[ServiceResult], selection: Selection, topk: int) -> list[Selected]:
    """The kernels that `selection` keeps, of those that have a measured latency."""
    return [s for s in selection(results, topk) if s.latency < float("inf") and s.body]


def service_name(selected: Selected) -> str:
    """The case name, `_ID`, and 32 hex digits that follow from where the kernel came from.

    A parent that stays keeps its name. Equal histories give equal names, so a repeated run has
    the same tables.
    """
    if selected.plan_id == PARENT:
        return selected.parent
    origin = "\n".join([selected.parent, selected.plan_id, selected.body])
    return f"{selected.case_name}_ID{uuid.uuid5(uuid.NAMESPACE_OID, origin).hex}"


def write_candidate(selected: Selected, folder: Path) -> Candidate:
    """The two files of a selected kernel in `folder`, and its row."""
    name = service_name(selected)
    stem = folder / f"{name}_{selected.parent}_{selected.plan_id}"
    kernel, task = Path(f"{stem}_body.py"), Path(f"{stem}_numpy.py")
    write_atomically(kernel, selected.body)
    write_atomically(task, selected.spec_code)
    return Candidate(
        service_name=name,
        case_name=selected.case_name,
        problem=selected.problem,
        values=json.loads(selected.values),
        task=str(task),
        kernel=str(kernel),
        plan_id=selected.plan_id,
    )
