"""Run the loop on toy problems in a process of its own: python drive.py FOLDER URL LOG."""

import asyncio
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import toy

from accelopt.agents.budget import Budget
from accelopt.agents.configuration import OFFLINE, ModelConfig
from accelopt.agents.roles import Prompts
from accelopt.evaluation import Scrutiny
from accelopt.kernels.language import LanguageOptions
from accelopt.loop import optimize_all
from accelopt.search.strategy import Settings
from accelopt.stages.jobs import NOTHING_KNOWN
from accelopt.stages.proposers import proposer_for
from accelopt.stages.run import Run, Watcher
from accelopt.stages.toolbox import toolbox_for
from accelopt.stages.workshop import WorkshopOptions, open_workshop

PROMPTS = Prompts.read(Path(__file__).resolve().parents[2] / "prompts")
ROLES_ASKED = ("planner", "executor", "fixer", "summarizer", "lister", "relabeler", "expert")
SETTINGS = Settings(iterations=3, beam=2, plans=3, samples=2)


async def run_toy(
    folder,
    url=OFFLINE,
    *,
    starts=(),
    settings=SETTINGS,
    budget=Budget(),
    replay=None,
    watcher=Watcher(),
    workers=2,
    tools=0,
    backend="toy:ToyLanguage",
    screening=Scrutiny.FULL,
    known=NOTHING_KNOWN,
    database=None,
    warm_start=False,
    deadline=None,
    files=None,
    **model,
):
    config = ModelConfig(url=url, model="m", **{"timeout": 5.0, "backoff": 0.01, **model})
    language = LanguageOptions(folder / "kernels", backend)
    options = WorkshopOptions(
        language,
        workers=workers,
        budget=budget,
        replay=replay,
        screening=screening,
        database=database,
        warm_start=warm_start,
        deadline=deadline,
    )
    async with open_workshop(folder, options) as shop:
        toolbox = toolbox_for(shop.evaluations, shop.offline, tools)
        configs = dict.fromkeys(ROLES_ASKED, config)
        proposer = proposer_for(configs, PROMPTS, shop, toolbox)
        run = Run(shop, proposer, settings, folder, watcher, files=files)
        return await optimize_all(starts or [toy.start(folder / "start")], run, known), shop


if __name__ == "__main__":
    folder, url, log, *database = sys.argv[1:]
    toy.ToyLanguage.log = Path(log)
    toy.ToyLanguage.seconds = 0.01
    kernels = Path(folder) / "start"
    starts = [toy.start(kernels, 100.0), toy.start(kernels, 97.123, "other")]
    settings = SETTINGS._replace(iterations=2, plans=2)
    database = database[0] if database else None
    asyncio.run(
        run_toy(
            Path(folder), url, starts=starts, settings=settings, database=database, timeout=60.0
        )
    )
