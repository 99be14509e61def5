"""Selection: from kernels to the files and rows that the next iteration starts from."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from accelopt.evaluation import Case, to_json
from accelopt.nodes import Node, Result
from accelopt.report.diffs import ended_as, patch_of
from accelopt.script_file_columns import CandidateRow
from accelopt.search.candidate_selection import Selection
from accelopt.store import write_atomically

PARENT = "parent"  # plan_id of a kernel that stays as it is


def write_kernel(path: Path, source: str, kernel: Path | str) -> None:
    """Writes a kernel as the file `path`, and beside it what the file `kernel`, from which it was made,
    imports of its folder."""
    from accelopt.kernels.nki.devices import kernel_folder  # only here: it brings the device

    kernel_folder.write_kernel(path, source, kernel)


def write_winner(folder: Path, source: str, start: str, kernel: Path | str) -> None:
    """`best.py`, and `best.diff` to it from the file `kernel` as it is, whose ends of lines both have. Where
    nothing was found, `source` is the text `start` that the search began with."""
    before = Path(kernel).read_bytes().decode()
    after = before if source == start else ended_as(before, source)
    write_kernel(folder / "best.py", after, kernel)
    write_atomically(folder / "best.diff", patch_of(before, after, Path(kernel).name))


def select(results: Sequence[Result], selection: Selection, topk: int) -> list[Node]:
    """Per case, the kernels that `selection` keeps, of those that have a measured latency."""
    cases: dict[str, list[Result]] = {}
    for result in results:
        cases.setdefault(result.job.node.case.case_name, []).append(result)
    chosen = [node for of_case in cases.values() for node in selection(of_case, topk)]
    return [node for node in chosen if node.latency is not None and node.source]


def origin(node: Node, staying: Collection[Node]) -> tuple[str, str]:
    """The name of the kernel that `node` was made of, and its plan_id; its own where it stays."""
    if node.parent is None or node in staying:
        return node.name, PARENT
    return node.parent.name, node.label


def write_candidate(
    node: Node, staying: Collection[Node], reference: str, folder: Path
) -> CandidateRow:
    """The two files of a kernel in `folder`, and its row; `reference` says what it computes."""
    parent, plan_id = origin(node, staying)
    stem = folder / f"{node.name}_{parent}_{plan_id}"
    kernel, task = Path(f"{stem}_body.py"), Path(f"{stem}_numpy.py")
    write_kernel(kernel, node.source, node.case.kernel)
    write_atomically(task, reference)
    places = {"service_name": node.name, "task": str(task), "kernel": str(kernel)}
    return CandidateRow(node.case.model_copy(update=places), plan_id, node.profile)


COLLECTED_COLUMNS = tuple("problem values case_id task kernel case_name service_name".split())


def collected_rows(cases: Iterable[Case]) -> list[dict[str, str]]:
    """The published columns of each case; further implementations of a case get further numbers."""
    from accelopt.kernels.nki import benchmark  # only here: what runs a search loads no language

    rows: list[dict[str, str]] = []
    for case in cases:
        earlier = sum(1 for row in rows if row["case_name"] == case.case_name)
        service = (
            benchmark.init_service_name(case) if not earlier else f"{case.case_name}_ID{earlier}"
        )
        own = {name: getattr(case, name) for name in COLLECTED_COLUMNS}
        rows.append({**own, "values": to_json(case.values), "service_name": service})
    return rows
