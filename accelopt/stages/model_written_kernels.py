"""The actions on a kernel that a model wrote itself, by the names of their methods in the catalog."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from accelopt.agents.proposer import KernelView
from accelopt.kernel_source import fingerprint
from accelopt.kernels.moves import methods_of, what_it_does
from accelopt.nodes import Action, Job, Result
from accelopt.search.method_catalog import LabelledStep
from accelopt.stages.experience import catalog_of

if TYPE_CHECKING:
    from accelopt.stages.run import Run


async def list_candidates(
    job: Job, view: KernelView, run: Run, offered: Sequence[Action]
) -> Result:
    """What a model lists and what the rules have `offered`; the rules' alone where it does not answer."""
    lister, catalog = run.proposer.lister, catalog_of(run.workshop, job.node.case)
    assert lister is not None
    for name in view.methods:
        catalog.add(name)
    language = run.workshop.language
    kinds = methods_of(language.name)
    names = {
        name: what_it_does(name, language.name) if name in kinds else "" for name in catalog.names
    }
    found = await lister.candidates(view, run.settings.plans, names)
    said = await lister.relabel(view, names, found.candidates) if found.candidates else ""
    named = catalog.relabel(
        [LabelledStep(one.method, one.detail) for one in found.candidates], said
    )
    complete = language.complete
    written = [
        Action(
            change=one.plan(method),
            method=method,
            touches=kinds[method].touches if method in kinds else (),
            key=fingerprint(complete(one.code)),
        )
        for one, (method, _) in zip(found.candidates, named, strict=True)
        if method
    ]
    return Result(
        job,
        (*written, *offered),
        diagnosis=view.diagnosis,
        remarks=(found.reason,) if found.reason else (),
        asked=1,
        unanswered=() if found.candidates else (found.reason,),
    )
