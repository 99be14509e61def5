"""CUDA kernels on a GPU: alone, with a contract, or as solutions of FlashInfer-Bench."""

from __future__ import annotations

from collections.abc import Sequence

from accelopt.concurrency import in_thread
from accelopt.evaluation import Case
from accelopt.kernels.cuda.moves import proposals
from accelopt.kernels.gpu.language import Solutions
from accelopt.kernels.notes import notes_in
from accelopt.nodes import Action, Node

MOST_PROPOSALS = 48


class Cuda(Solutions):
    """Solutions whose work is done by kernels in CUDA C++."""

    name = "cuda"
    notes = notes_in("kernels/cuda/notes.json")
    work = "by the kernels of its own sources"
    compiled_with = ()
    may_name = (
        "The sources may include CUDA's own headers, cub, cute and cutlass, and name nothing that "
        "reaches the host's files, threads, clocks or libraries. A kernel that is given alone is "
        "started as its line `#pragma launch` says."
    )

    def unread(self, case: Case) -> str:
        """That no rule reads CUDA, before a search waits for it."""
        if self._problem(case).template.spec.binding != "driver":
            return "CUDA with host code is not read: without a model nothing is tried"
        return "CUDA is not read: hints and knobs only, unless a model writes kernels"

    async def actions(self, node: Node, focus: str = "") -> Sequence[Action]:
        """The hints of `accelopt.kernels.cuda.moves`, the most promising ones."""
        template = self._problem(node.case).template
        if template.spec.binding != "driver":
            return ()
        name = template.spec.entry_point.partition("::")[2]
        return await in_thread(proposals, node.source, name, MOST_PROPOSALS)
