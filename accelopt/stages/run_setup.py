"""From a configuration to a run with everything in its place."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

from accelopt.stages.checking_tools import toolbox_for
from accelopt.stages.config import Config
from accelopt.stages.proposers import Configs, proposer_for, read_prompts
from accelopt.stages.run import Run
from accelopt.stages.run_files import write_spending
from accelopt.stages.workshop import open_workshop
from accelopt.store import JsonObject

if TYPE_CHECKING:
    from accelopt.stages.spec_kernel_folder import KernelFolder


@asynccontextmanager
async def open_run(
    config: Config,
    models: Configs,
    saved: JsonObject | None = None,
    files: KernelFolder | None = None,
) -> AsyncIterator[Run]:
    """A run in `config.out`, continued where there is one already with the same `saved`
    configuration (ConfigError where that was another). `files` are written beside the run's own."""
    async with open_workshop(config.out, config.workshop, saved) as workshop:
        toolbox = toolbox_for(workshop.evaluations, workshop.offline, config.tools)
        proposer = proposer_for(
            models, read_prompts(config.prompts, models), workshop, toolbox, config.agent
        )
        seed = config.workshop.seed
        run = Run(workshop, proposer, config.settings, config.out, seed=seed, files=files)

        def spent() -> None:
            with suppress(OSError):  # what ends the run is what is told
                write_spending(workshop.ledger, run)

        spent()
        workshop.ledger.changed = spent
        try:
            yield run
        finally:
            spent()
