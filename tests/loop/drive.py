"""Run the loop on toy problems in a process of its own: python drive.py FOLDER URL LOG."""

import asyncio
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import toy

from accelopt.agents.configuration import OFFLINE, ModelConfig
from accelopt.kernels.language import LanguageOptions
from accelopt.loop import optimize_all
from accelopt.search.strategy import Settings
from accelopt.stages.config import Config
from accelopt.stages.jobs import NOTHING_KNOWN
from accelopt.stages.run import Watcher
from accelopt.stages.run_setup import open_run
from accelopt.stages.workshop import WorkshopOptions

PROMPTS = Path(__file__).resolve().parents[2] / "prompts"
ROLES_ASKED = ("planner", "executor", "fixer", "summarizer", "lister", "relabeler", "expert")
SETTINGS = Settings(iterations=3, beam=2, plans=3, samples=2)


async def run_toy(
    folder,
    url=OFFLINE,
    *,
    starts=(),
    settings=SETTINGS,
    watcher=Watcher(),
    tools=0,
    backend="toy:ToyLanguage",
    known=NOTHING_KNOWN,
    files=None,
    agent=None,
    roles=ROLES_ASKED,
    **given,
):
    """What is given beyond these is the workshop's or, where it has no such option, the model's."""
    of_workshop = {name: given.pop(name) for name in WorkshopOptions._fields if name in given}
    config = ModelConfig(url=url, model="m", **{"backoff": 0.01, **given})
    language = LanguageOptions(folder / "kernels", backend)
    options = WorkshopOptions(language, **{"workers": 2, **of_workshop})
    models = dict.fromkeys(roles, config)
    config = Config(folder, settings, options, PROMPTS, tools=tools, agent=agent)
    async with open_run(config, models, files=files) as run:
        run = run._replace(watcher=watcher)
        starts = starts or [toy.start(folder / "start")]
        return await optimize_all(starts, run, known), run.workshop


if __name__ == "__main__":
    folder, url, log, *database = sys.argv[1:]
    toy.ToyLanguage.log = Path(log)
    toy.ToyLanguage.seconds = 0.01
    kernels = Path(folder) / "start"
    starts = [toy.start(kernels, 100.0), toy.start(kernels, 97.123, "other")]
    settings = SETTINGS._replace(iterations=2, plans=2)
    database = database[0] if database else None
    asyncio.run(run_toy(Path(folder), url, starts=starts, settings=settings, database=database))
