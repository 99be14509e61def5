"""How busy the pipeline keeps models and devices, against a stage-by-stage schedule.

    python benchmarks/pipeline.py [--beam 6 --plans 12 --samples 2 --workers 2 --scale 50]

One iteration of the loop and the same work in stages (all plans; then for each plan its samples;
then its evaluations one at a time) run one after the other in this process, against a
chat-completions server in a process of its own. Latencies are those of a real run divided by
`--scale`: a plan takes about 30 s, a sample 45 s, an evaluation 15 s, each varying by a third.
"""

import asyncio
import hashlib
import json
import multiprocessing
import random
import sys
import tempfile
import time
from argparse import ArgumentParser, Namespace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

import toy  # noqa: E402
from scripted_server import Scripted, ScriptedServer  # noqa: E402

from accelopt.agents.configuration import ModelConfig  # noqa: E402
from accelopt.agents.proposer import KernelView, Proposer  # noqa: E402
from accelopt.kernels.language import LanguageOptions  # noqa: E402
from accelopt.nodes import Job, Node, Want  # noqa: E402
from accelopt.search.strategy import Settings  # noqa: E402
from accelopt.stages.jobs import Knowledge, perform  # noqa: E402
from accelopt.stages.planning import draw_plans, view_kernel  # noqa: E402
from accelopt.stages.run import Run  # noqa: E402
from accelopt.stages.run_setup import proposer_for, read_prompts  # noqa: E402
from accelopt.stages.workshop import Workshop, WorkshopOptions, open_workshop  # noqa: E402

PLAN_SECONDS, SAMPLE_SECONDS, EVALUATION_SECONDS = 30.0, 45.0, 15.0


def spread(name: str) -> float:
    """A factor between 2/3 and 4/3 that follows from `name`."""
    return random.Random(hashlib.sha256(name.encode()).digest()).uniform(2 / 3, 4 / 3)


def serve(scale: float, pipe) -> None:
    """The model's process: answers after the scaled time, and counts that time."""
    busy = [0.0]

    def respond(request):
        planning = "performance engineer" in request["messages"][0]["content"]
        text = json.dumps(request["messages"]) + str(request.get("temperature"))
        digest = hashlib.sha256(text.encode()).hexdigest()
        seconds = (PLAN_SECONDS if planning else SAMPLE_SECONDS) * spread(digest) / scale
        busy[0] += seconds
        if planning:
            return Scripted(f"Idea {digest[:12]}.", seconds=seconds)
        cost = 10 + int(digest[:12], 16) / 1e12
        return Scripted(f"```python\n{toy.kernel(cost)}```", seconds=seconds)

    with ScriptedServer(respond) as server:
        pipe.send(server.url)
        while pipe.recv() != "stop":
            pipe.send(busy[0])
            busy[0] = 0.0


class SlowLanguage(toy.ToyLanguage):
    """Toy kernels on devices that take their time."""

    scale = 1.0
    busy = 0.0

    async def evaluate(self, case, source):
        """The toy's verdict, after the scaled time of an evaluation."""
        seconds = EVALUATION_SECONDS * spread(source) / SlowLanguage.scale
        async with self.slots:
            await asyncio.sleep(seconds)
        SlowLanguage.busy += seconds
        return toy.verdict(source)


async def pipelined(views: list[KernelView], run: Run) -> int:
    """One round of the loop: how many samples were made."""
    jobs = [Job(at, 1, Want.DEVELOP, view.node) for at, view in enumerate(views)]
    work = (perform(job, run, Knowledge(), frozenset()) for job in jobs)
    results = await asyncio.gather(*work)
    return sum(len(result.nodes) for result in results)


async def staged(views: list[KernelView], run: Run) -> int:
    """The same work, one stage after the other."""
    plans = await draw_plans(views, run.proposer.planner, run.settings.plans)
    made = 0
    for view, result in zip(views, plans, strict=True):
        for draw, plan in enumerate(result.changes()):
            samples = range(run.settings.samples)
            drafts = await asyncio.gather(
                *(run.proposer.executor.implement(view, plan, draw, sample) for sample in samples)
            )
            for draft in drafts:
                await run.workshop.evaluations.evaluate(view.node.case, str(draft.source))
                made += 1
    return made


def proposer(config: ModelConfig, shop: Workshop) -> Proposer:
    """All roles on the scripted model."""
    configs = dict.fromkeys(("planner", "executor", "fixer", "summarizer"), config)
    return proposer_for(configs, read_prompts(ROOT / "prompts", configs), shop)


async def timed(schedule, args: Namespace, url: str, folder: Path) -> tuple[float, float, int]:
    """Wall seconds, device-busy seconds and samples of one schedule."""
    settings = Settings(1, args.beam, args.plans, args.samples, fixer_steps=0)
    config = ModelConfig(url=url, model="scripted", concurrency=args.concurrency)
    language = LanguageOptions(folder / "kernels", f"{__name__}:SlowLanguage")
    async with open_workshop(folder, WorkshopOptions(language, workers=args.workers)) as shop:
        run = Run(shop, proposer(config, shop), settings, folder)
        cases = [toy.start(folder, 100.0 + n, f"toy{n}") for n in range(args.beam)]
        starts = [
            Node(case, source, toy.verdict(source))
            for case in cases
            for source in [shop.language.source(case)]
        ]
        views = [await view_kernel(start, shop.language, iteration=1) for start in starts]
        SlowLanguage.busy = 0.0
        started = time.monotonic()
        made = await schedule(views, run)
        return time.monotonic() - started, SlowLanguage.busy, made


def measure(args: Namespace) -> None:
    """Time both schedules and print what they took."""
    SlowLanguage.scale = args.scale
    here, there = multiprocessing.get_context("spawn").Pipe()
    server = multiprocessing.get_context("spawn").Process(target=serve, args=(args.scale, there))
    server.start()
    url = here.recv()
    walls = {}
    with tempfile.TemporaryDirectory() as folder:
        for schedule in (pipelined, staged):
            place = Path(folder) / schedule.__name__
            wall, busy, made = asyncio.run(timed(schedule, args, url, place))
            here.send("busy")
            model = here.recv() / args.concurrency
            device = busy / args.workers
            walls[schedule] = wall
            bound = max(model, device)
            print(
                f"{schedule.__name__:>9}: {made} samples in {wall:.1f} s; device busy "
                f"{device / wall:.0%} of the time on {args.workers} workers; bound {bound:.1f} s "
                f"(models {model:.1f} s at {args.concurrency} at a time, devices {device:.1f} s), "
                f"wall / bound {wall / bound:.2f}"
            )
    here.send("stop")
    server.join()
    print(f"staged / pipelined: {walls[staged] / walls[pipelined]:.2f}")


if __name__ == "__main__":
    parser = ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--beam", type=int, default=6)
    parser.add_argument("--plans", type=int, default=12)
    parser.add_argument("--samples", type=int, default=2)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--concurrency", type=int, default=16)
    parser.add_argument("--scale", type=float, default=50.0)
    measure(parser.parse_args())
