"""What every strategy must keep to, on planted landscapes, whatever is drawn, slow, or broken."""

import asyncio
import json
import random
from functools import cache
from math import log

import drive
import grounds
import landscape
import models
import pytest
from scripted_server import FAULTS, ScriptedServer

from accelopt.agents.proposer import Proposer
from accelopt.errors import ConfigError
from accelopt.kernels.language import LanguageOptions
from accelopt.loop import search
from accelopt.nodes import Want
from accelopt.search.strategy import STRATEGIES, Settings, open_strategy
from accelopt.stages.baseline_and_winner import measure
from accelopt.stages.run import Run
from accelopt.stages.workshop import WorkshopOptions, open_workshop

EVERY = pytest.mark.parametrize("name", STRATEGIES)
ENOUGH = 1000  # rounds that no search here comes to


class Found:
    """One search: its results in the order they were told, its strategy, and why it ended."""

    def __init__(self, history, ended, strategy, start):
        self.results = [result for round_ in history for result in round_.results]
        self.ended = ended
        self.strategy = strategy
        self.start = start

    @property
    def records(self):
        return [(r.job.number, r.job.want.value, r.record()) for r in self.results]

    @property
    def kernels(self):
        """Distinct kernels but the start, in the order they were told: what was paid for."""
        made = [node.source for result in self.results for node in result.nodes]
        return [text for text in dict.fromkeys(made) if text not in ("", self.start.source)]

    def curve(self):
        """The best latency after so many evaluations."""
        best, seen, points = self.start.latency, {self.start.source}, []
        for result in self.results:
            for node in result.nodes:
                best = min(best, node.latency or best)
                if not node.missing and node.source not in seen:
                    seen.add(node.source)
                    points.append(best)
        return points


def find(folder, name, *, seed=0, land=0, kind="", workers=2, **settings):
    settings = {"iterations": ENOUGH, "beam": 3, "plans": 4, "samples": 1, **settings}

    async def go():
        place = "grounds:Grounds" if kind else "landscape:Planted"
        language = LanguageOptions(folder / "kernels", place)
        async with open_workshop(folder, WorkshopOptions(language, workers=workers)) as shop:
            proposer = Proposer(shop.offline, shop.offline, shop.offline)
            run = Run(shop, proposer, Settings(strategy=name, **settings), folder, seed=seed)
            planted = (
                grounds.case(folder, kind, land) if kind else landscape.case(folder / "start", land)
            )
            start = await measure(planted, run)
            strategy = open_strategy(start, run.settings, seed)
            history, ended = await search(strategy, start, run)
            return Found(history, ended, strategy, start)

    return asyncio.run(go())


@pytest.fixture(autouse=True)
def machine(monkeypatch):
    """A machine that is new, quick and stays."""
    monkeypatch.setattr(landscape.Planted, "evaluated", [])
    monkeypatch.setattr(landscape.Planted, "dies_after", None)
    monkeypatch.setattr(landscape.Planted, "slow", 0.0)


@EVERY
@pytest.mark.parametrize("budget", [1, 7, 24])
def test_the_budget_is_spent_exactly_and_the_best_gets_never_slower(tmp_path, name, budget):
    found = find(tmp_path, name, evaluations=budget)
    assert found.ended == f"{budget} evaluations are spent" or len(found.kernels) < budget
    assert len(found.kernels) == budget or found.ended == "nothing is left to try"
    assert len(landscape.Planted.evaluated) == len(set(landscape.Planted.evaluated))
    assert found.curve() == sorted(found.curve(), reverse=True)
    assert found.strategy.best.latency == min([found.start.latency, *found.curve()])


@EVERY
def test_without_a_budget_the_end_has_a_reason(tmp_path, name):
    found = find(tmp_path, name, iterations=3)
    assert found.ended in ("3 rounds are done", "nothing is left to try")
    assert find(tmp_path / "none", name, iterations=0).ended == "no round was asked for"


@EVERY
@pytest.mark.parametrize("window", [1, 8])
def test_workers_and_delays_change_nothing(tmp_path, name, window, monkeypatch):
    calm = find(tmp_path / "calm", name, window=window, workers=1, evaluations=16)
    monkeypatch.setattr(landscape.Planted, "slow", 0.004)
    hasty = find(tmp_path / "hasty", name, window=window, workers=5, evaluations=16)
    assert calm.records == hasty.records and len(calm.records) > 1
    assert json.dumps(calm.strategy.state()) == json.dumps(hasty.strategy.state())


@EVERY
def test_killed_at_each_evaluation_and_resumed_it_ends_the_same(tmp_path, name, monkeypatch):
    whole = find(tmp_path / "whole", name, evaluations=5)
    projection = (tmp_path / "whole" / "planted_seed0" / "search_state.json").read_text()
    for after in range(1, 6):
        folder = tmp_path / f"killed{after}"
        monkeypatch.setattr(landscape.Planted, "evaluated", [])
        monkeypatch.setattr(landscape.Planted, "dies_after", after)
        with pytest.raises(landscape.Interrupted):
            find(folder, name, evaluations=5)
        monkeypatch.setattr(landscape.Planted, "dies_after", None)
        again = find(folder, name, evaluations=5)
        assert again.records == whole.records
        evaluated = landscape.Planted.evaluated
        assert len(evaluated) == len(set(evaluated))
        assert (folder / "planted_seed0" / "search_state.json").read_text() == projection


@EVERY
def test_a_small_budget_is_the_beginning_of_a_large_one(tmp_path, name):
    small = find(tmp_path / "small", name, evaluations=6)
    large = find(tmp_path / "large", name, evaluations=20)
    assert small.kernels == large.kernels[: len(small.kernels)]
    grown = find(tmp_path / "small", name, evaluations=20)
    assert grown.kernels == large.kernels


def area(folder, name, land):
    settings = {"land": land, "seed": land, "evaluations": 24, "beam": 2, "plans": 2}
    curve = find(folder / f"{name}{land}", name, **settings).curve()
    return sum(map(log, [*curve, *[curve[-1]] * (24 - len(curve))])) / 24


@pytest.fixture(scope="module")
def random_area(tmp_path_factory):
    folder = tmp_path_factory.mktemp("random")
    return cache(lambda land: area(folder, "random", land))


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in STRATEGIES if name != "random"])
def test_better_than_random_at_equal_evaluations(tmp_path, name, random_area):
    """By the mean logarithm of the best time after each evaluation, on forty landscapes, with the
    widths that `accelopt run` has by default."""

    better = [area(tmp_path, name, land) < random_area(land) for land in range(40)]
    assert sum(better) >= 28


def log_best(folder, name, kind, seed):
    settings = {"kind": kind, "land": seed, "seed": seed, "evaluations": 48, "beam": 2, "plans": 2}
    curve = find(folder / f"{name}_{kind}_{seed}", name, **settings).curve()
    return log(curve[-1] / grounds.START)


@pytest.mark.slow
@pytest.mark.parametrize("kind", grounds.KINDS)
def test_none_loses_to_random_where_other_things_are_hard(tmp_path, kind):
    """By the best time of 48 evaluations, on landscapes that nothing was chosen on."""
    seeds = range(5000, 5020)
    chance = [log_best(tmp_path, "random", kind, seed) for seed in seeds]
    for name in (name for name in STRATEGIES if name != "random"):
        found = [log_best(tmp_path, name, kind, seed) for seed in seeds]
        lost = sum(a > b + 1e-9 for a, b in zip(found, chance, strict=True))
        won = sum(a < b - 1e-9 for a, b in zip(found, chance, strict=True))
        assert lost <= won, name


@EVERY
def test_actions_that_fail_have_no_source_or_repeat_a_kernel_end_nothing(tmp_path, name):
    found = find(tmp_path, name, evaluations=60, plans=12)
    nodes = [node for result in found.results for node in result.nodes]
    assert {node.evaluation.status.value for node in nodes} >= {"correct", "wrong_numbers"}
    asked = [r.job.action.method for r in found.results if r.job.want is Want.BUILD]
    if asked:
        assert any(node.missing for node in nodes) == ("lost" in asked or "set_knobs" in asked)
        assert "nothing" not in asked  # it is a kernel that is known
    assert len(found.kernels) > 30


@EVERY
def test_a_model_of_which_a_third_of_the_calls_fails(tmp_path, name):
    kinds = [fault for fault in FAULTS if fault.kind not in ("hang", "huge", "drip")]
    chance = random.Random(3)
    faults = (chance.choice(kinds) if chance.random() < 0.33 else None for _ in range(10**6))
    settings = drive.SETTINGS._replace(strategy=name, iterations=2, evaluations=12)
    with ScriptedServer(models.respond, faults) as server:
        [outcome], shop = asyncio.run(
            drive.run_toy(tmp_path, server.url, settings=settings, attempts=20)
        )
    assert outcome.speedup > 1 and 0 < outcome.correct <= len(outcome.nodes)
    assert shop.evaluations.made <= 12 + 1
    state = json.loads((tmp_path / "toy_N4" / "search_state.json").read_text())
    assert state["strategy"] == name and state["ended"]
    summary = json.loads((tmp_path / "toy_N4" / "best_summary.json").read_text())
    assert summary["speedup"] == outcome.speedup and summary["verified"]
    tactics = json.loads((tmp_path / "global_tactic_graph.json").read_text())
    assert tactics["graph_version"] == state["graph_version"]


def test_an_unknown_strategy_or_option_is_one_sentence(tmp_path):
    with pytest.raises(ConfigError, match="choose from beam, random, mcgs, regraph, fsm, experts"):
        find(tmp_path / "a", "anneal")
    with pytest.raises(ConfigError, match="no option 'depth'"):
        find(tmp_path / "b", "random", options={"depth": "3"})
