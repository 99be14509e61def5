"""A worker's files, for people: written from its context, never read back."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from accelopt.store import write_atomically, write_json

if TYPE_CHECKING:
    from accelopt.fsm.worker.context import WorkerContext


def write_artifacts(ctx: WorkerContext) -> None:
    """Kernels, prompt, reply, strategy and reflexion of one step; the best kernel in `output/`."""
    folder, number = ctx.setup.folder, ctx.job.round
    if folder is None:
        return
    step = f"round{number:03d}"
    if ctx.written is not None:
        write_atomically(folder / f"{step}_opt_prompt.txt", ctx.written.prompt)
        write_atomically(folder / f"{step}_opt_reply.txt", ctx.written.reply)
    if ctx.bottleneck is not None:
        chosen = ctx.bottleneck.model_dump(mode="json")
        others = [one.model_dump(mode="json") for one in ctx.bottlenecks]
        write_json(
            folder / f"{step}_strategy.json",
            {"bottleneck": chosen, "rank": ctx.rank, "bottlenecks": others},
        )
    if ctx.reflexion is not None:
        text = json.dumps(ctx.reflexion.model_dump(mode="json"), indent=2)
        write_atomically(folder / f"{step}_reflexion.txt", text + "\n")
    if ctx.node is not None:
        write_atomically(folder / f"kernel_round_{number}.py", ctx.node.source)
    if ctx.best_sol is not None and ctx.best_sol is not ctx.best_runtime:
        write_atomically(folder / f"kernel_round_{number}_sol.py", ctx.best_sol.source)
    if ctx.best_runtime is not None:
        write_atomically(folder / "output" / "best_kernel.py", ctx.best_runtime.source)
    write_json(folder / "metrics.json", ctx.metrics)
