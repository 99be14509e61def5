"""`accelopt.optimize`: what the command of the same name does, as a function."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from accelopt.cli.optimize import aimed, elsewhere, mind_earlier_run, own_kernel
from accelopt.cli.options import Shared
from accelopt.cli.session import hold_session
from accelopt.stages.run import Outcome


def optimize(
    kernel: str | Path,
    reference: str | Path,
    *,
    out: str | Path | None = None,
    also: Sequence[str] = (),
    resume: bool = False,
    target: str | None = None,
    strategy: str = "beam",
    evaluations: int | None = None,
    iterations: int = 4,
    beam: int = 3,
    plans: int = 4,
    samples: int = 2,
    model_config: str | Path | None = None,
    workers: int = 0,
) -> Outcome:
    """Make the NKI kernel in the file `kernel` faster while it computes what `reference` says.

    `out` is the run's folder (by default `runs/` and the kernel's name), which `resume` continues.
    `also` are other sizes of the reference's (`"N=8192"`) or paths of other references: the kernel is
    made faster there too, each winner is tried at all of them, and the outcome's `elsewhere` says how
    this one did. `target` is an entry of `accelopt.hardware.TARGETS` (without it
    trn2 for kernels of `nki.*`, trn1 for others), `strategy` one of
    `accelopt.search.strategy.STRATEGIES`; `evaluations` bounds the distinct kernels that are judged.
    The other options are those of the command. Without `model_config`, the path of a model's
    configuration, no model is called.

    Returns the outcome: `best` (a node with `source` and `latency` in ms; None where the baseline
    fails, and `failure` says why), `speedup`, `changes` in sentences. Everything that the command
    writes is in `out`. Call it outside of a running event loop.

    Raises ConfigError for input that cannot be used, in one sentence.
    """
    start = own_kernel(Path(kernel), Path(reference))
    folder = Path(out) if out is not None else Path("runs") / Path(kernel).stem
    mind_earlier_run(folder, resume)
    shared = Shared(
        model_config=Path(model_config) if model_config is not None else None,
        iterations=iterations,
        beam=beam,
        plans=plans,
        samples=samples,
        target=target,
        workers=workers,
        strategy=strategy,
        evaluations=evaluations,
    )
    aim = aimed(shared, Path(kernel))
    return hold_session([start, *elsewhere(start, also, folder)], aim.session(folder))[0]
