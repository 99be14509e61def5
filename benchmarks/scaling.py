"""What it costs to do evaluations on many workers, with Ray and without, and what 32 nodes would make
of a study.

    python benchmarks/scaling.py [--seconds 1.0] [--calls 16] [--workers 1 2 4] [--nodes 32]

Each call sleeps `--seconds` in a child of its own, a fork of a process that is warm, so the cores of
this machine do not limit how many there can be at a time: what is printed is what pool and cluster
add, once every worker has begun. The study is simulated from the times that calls took here: fourteen
problems, four strategies, three models and sixteen rounds of evaluations, whose length varies as those
of NKIBench's kernels do.
"""

from __future__ import annotations

import argparse
import asyncio
import heapq
import random
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from accelopt.evaluation import Evaluation, Status  # noqa: E402
from accelopt.sandbox.cluster import LOCAL, ClusterPool  # noqa: E402
from accelopt.sandbox.workers import Call, WorkerPool  # noqa: E402

PROBLEMS, STRATEGIES, MODELS, ROUNDS = 14, 4, 3, 16
SAMPLES = 24  # kernels that one round of a beam judges
WINDOW = 8  # evaluations of one problem that are under way at once
SPREAD = 0.9  # of ln(seconds) over NKIBench's evaluations: the slowest takes 30 times the median
STRAGGLING = 0.01  # of the evaluations hang until their limit
LIMIT = 30.0  # times the median: the time limit of an evaluation


def nap(payload: Mapping[str, float]) -> Evaluation:
    """The work of one call."""
    time.sleep(payload["seconds"])
    return Evaluation(status=Status.REFUSED, message="asleep")


async def throughput(
    opened: Callable[[], WorkerPool | ClusterPool], count: int, calls: int, seconds: float
) -> tuple[float, float]:
    """Wall seconds from nothing to the first call of every worker, and then for so many calls."""
    payload, limits = {"seconds": seconds}, (60.0 + seconds, 1 << 30)
    call = Call("benchmarks.scaling:nap", payload, *limits, warm=("benchmarks.scaling",))
    began = time.monotonic()
    async with opened() as pool:
        first = await asyncio.gather(*(pool.ask(call, Evaluation) for _ in range(count)))
        assert all(isinstance(found, Evaluation) for found in first), first[0]
        ready = time.monotonic()
        await asyncio.gather(*(pool.ask(call, Evaluation) for _ in range(calls)))
        return ready - began, time.monotonic() - ready


def study(nodes: int, overhead: float, seed: int = 0) -> tuple[float, float, float]:
    """A study on so many nodes, in medians of an evaluation: wall time, share of it that nodes work,
    and how long the last hundredth of the evaluations takes.

    Every problem has at most a window of evaluations under way, and a round ends with its slowest.
    """
    draw = random.Random(seed)
    left = [ROUNDS] * (PROBLEMS * STRATEGIES * MODELS)
    open_ = [0] * len(left)
    begun = [0] * len(left)
    waiting = list(range(len(left)))
    running: list[tuple[float, int]] = []
    now = busy = 0.0
    ends: list[float] = []
    while True:
        draw.shuffle(waiting)
        for search in list(waiting):
            while len(running) < nodes and open_[search] < WINDOW and begun[search] < SAMPLES:
                hangs = draw.random() < STRAGGLING
                took = overhead + (LIMIT if hangs else min(LIMIT, draw.lognormvariate(0, SPREAD)))
                heapq.heappush(running, (now + took, search))
                busy += took
                open_[search] += 1
                begun[search] += 1
        if not running:
            break
        now, search = heapq.heappop(running)
        ends.append(now)
        open_[search] -= 1
        if not open_[search] and begun[search] == SAMPLES:
            left[search] -= 1
            begun[search] = 0
            if not left[search]:
                waiting.remove(search)
    tail = now - ends[int(0.99 * len(ends))]
    return now, busy / (now * nodes), tail


def main() -> None:
    """Measure, then simulate."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--calls", type=int, default=16)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--nodes", type=int, nargs="+", default=[1, 8, 32, 128])
    options = parser.parse_args()
    kinds: dict[str, Callable[[int], WorkerPool | ClusterPool]] = {
        "pool": WorkerPool,
        "ray": lambda count: ClusterPool(LOCAL, count),
    }
    overheads: dict[str, list[float]] = {kind: [] for kind in kinds}
    print(f"{options.calls} calls of {options.seconds:g} s")
    for count in options.workers:
        ideal = options.seconds * -(-options.calls // count)
        for kind, opened in kinds.items():
            start, took = asyncio.run(
                throughput(partial(opened, count), count, options.calls, options.seconds)
            )
            overheads[kind].append(took / ideal - 1)
            print(
                f"  {count} workers, {kind:4}: {options.calls / took:5.2f} calls/s, "
                f"{overheads[kind][-1]:6.1%} over the ideal, after a start of "
                f"{start - options.seconds:.1f} s"
            )
    for kind, found in overheads.items():
        print(f"{kind}: {statistics.median(found):.1%} over the ideal (median)")
    dearer = [
        (1 + ray) / (1 + pool) - 1
        for pool, ray in zip(overheads["pool"], overheads["ray"], strict=True)
    ]
    print(f"Ray over the pool: {statistics.median(dearer):.1%} an evaluation (median; asked: 10%)")
    overhead = max(0.0, statistics.median(overheads["ray"]))
    searches = PROBLEMS * STRATEGIES * MODELS
    print(f"simulated study: {searches} searches of {ROUNDS} rounds of {SAMPLES} evaluations")
    alone = study(1, overhead)[0]
    for nodes in options.nodes:
        wall, share, tail = study(nodes, overhead)
        print(
            f"  {nodes:4} nodes: {alone / wall:6.1f} times as fast as one, {share:.0%} busy, the last "
            f"hundredth takes {tail / wall:.0%} of the time"
        )


if __name__ == "__main__":
    main()
