"""Three experts on planted knobs: 324 points, some refused, some failing; a new one is one entry."""

import asyncio
import json
import random
from math import exp, inf, log
from statistics import median

import drive
import pytest
from scripted_server import ScriptedFault, ScriptedServer
from test_knob_space import MATMUL
from test_strategies import find

from accelopt.errors import ConfigError
from accelopt.knob_space import KnobSpec, Space, name_of
from accelopt.nodes import Job, Want
from accelopt.search.knob_experts import EXPERTS, Expert, TriedValues, believing, best_of
from accelopt.search.knob_samplers import SAMPLERS
from accelopt.search.knob_search import Experts, proposers_of
from accelopt.search.strategy import Settings

SEEDS = range(20)


def planted(seed):
    """A time for every point but those that do not fit (None) or fail (infinity)."""
    chance = random.Random(seed)
    best = {knob.name: chance.randrange(len(knob.values)) for knob in MATMUL.knobs}
    weight = {name: chance.uniform(0.02, 0.25) for name in best}
    pairs = [(*chance.sample(list(best), 2), chance.uniform(-0.15, 0.15)) for _ in range(3)]
    limit = chance.choice((96, 144, 228))

    def time(values):
        shared = (values["block_m"] + values["block_n"]) * values["block_k"] * 2
        if shared * values["num_stages"] / 1024 > limit:
            return None
        if values["num_warps"] == 2 and values["block_m"] * values["block_n"] >= 256 * 128:
            return inf
        at = {knob.name: knob.values.index(values[knob.name]) for knob in MATMUL.knobs}
        apart = sum(weight[name] * (at[name] - best[name]) ** 2 for name in best)
        mixed = sum(x * (at[a] - 1) * (at[b] - 1) for a, b, x in pairs)
        return exp(apart + mixed + random.Random(name_of(values) + str(seed)).gauss(0, 0.02))

    return time


def tune(time, proposers, evaluations, seed):
    """The best after each evaluation; what is refused costs nothing, and is never proposed again."""
    chance, history, curve = random.Random(seed), [], []
    while len(curve) < evaluations:
        for choose in proposers.values():
            values = choose(MATMUL, history, chance)
            if values is None:
                return curve
            assert name_of(values) not in {name_of(tried.configuration) for tried in history}
            assert not MATMUL.faults(values)
            took = time(values)
            history.append(TriedValues(values, inf if took is None else took))
            if took is not None:
                best = best_of(history)
                curve.append(best.latency if best else inf)
    return curve[:evaluations]


def area(curve):
    return sum(log(ms) if ms < inf else 3.0 for ms in curve)


@pytest.mark.slow
def test_experts_come_within_5_percent_in_30_evaluations_and_beat_random():
    needed, better = [], 0
    for seed in SEEDS:
        time = planted(seed)
        least = min(ms for ms in map(time, MATMUL.points()) if ms is not None)
        curve = tune(time, proposers_of({}), 30, seed)
        other = tune(time, proposers_of({"search": "random"}), 30, seed)
        needed.append(next((n for n, ms in enumerate(curve, 1) if ms <= 1.05 * least), inf))
        better += area(curve) < area(other)
    assert median(needed) <= 30 and better >= 16


@pytest.mark.parametrize("name", ["exhaustive", "coordinate", "random"])
def test_samplers_try_everything_once(name):
    time = planted(3)
    curve = tune(time, {name: SAMPLERS[name]}, 10_000, 0)
    possible = [ms for ms in map(time, MATMUL.points()) if ms is not None]
    assert len(curve) == len(possible) and curve[-1] == min(possible)


def test_tpe_goes_on_from_what_the_experts_propose():
    pytest.importorskip("optuna")
    proposers, better = {"tpe": SAMPLERS["tpe"]}, 0
    for seed in range(6):
        time = planted(seed)
        curve = tune(time, proposers, 20, seed)
        assert curve == tune(time, proposers, 20, seed)
        better += area(curve) < area(tune(time, proposers_of({"search": "random"}), 20, seed))
    assert better >= 5
    history = []
    for expert in EXPERTS.values():
        values = SAMPLERS["tpe"](MATMUL, history, random.Random(0))
        assert values == expert.choose(MATMUL, history, random.Random(0))
        history.append(TriedValues(values, 1.0))


def test_coordinate_descent_begins_at_the_default_and_changes_one_knob():
    seen = []

    def time(values):
        seen.append(values)
        return 1.0 + values["block_k"]

    tune(time, {"coordinate": SAMPLERS["coordinate"]}, 3, 0)
    assert seen[0] == MATMUL.default
    assert all(sum(a != b for a, b in zip(v.values(), seen[0].values())) == 1 for v in seen[1:])


def test_beliefs_decide_until_something_was_measured():
    first = {name: EXPERTS[name].choose(MATMUL, [], random.Random(0)) for name in EXPERTS}
    assert first["throughput"] == {knob.name: knob.values[-1] for knob in MATMUL.knobs}
    assert first["memory"] == {knob.name: knob.values[0] for knob in MATMUL.knobs}
    assert first["robustness"] == MATMUL.default


def test_a_fourth_expert_is_one_entry(monkeypatch, tmp_path):
    bold = Expert("bold", "Everything at once.", believing(-1.0))
    monkeypatch.setitem(EXPERTS, "bold", bold)
    assert list(proposers_of({})) == ["robustness", "throughput", "memory", "bold"]
    found = find(tmp_path, "experts", evaluations=8, options={"experts": "bold,memory"})
    focused = {r.job.focus for r in found.results if r.job.want is Want.BUILD}
    assert focused == {"bold", "memory"}


def test_wrong_options_are_one_sentence(tmp_path):
    for options, said in (
        ({"experts": "nobody"}, "no expert 'nobody'"),
        ({"search": "luck"}, "search=luck is unknown"),
        ({"patience": "x"}, "patience=x is no number"),
        ({"depth": "1"}, "no option 'depth'"),
    ):
        with pytest.raises(ConfigError, match=said):
            find(tmp_path, "experts", options=options)


def test_it_converges_with_a_reason_and_shows_its_state(tmp_path):
    found = find(tmp_path, "experts", options={"patience": "1"})
    state = found.strategy.state()
    assert "no gain of 2% for 1 iterations" in state["converged"]
    assert state["iteration"] >= 3 and state["best_config"] in [t["cfg"] for t in state["history"]]
    assert (
        state["symptoms"][-1] == "limited by dma: It is slow." or "no gain" in state["symptoms"][-1]
    )
    limited = find(tmp_path / "few", "experts", options={"iterations": "2"})
    assert limited.strategy.converged == "2 iterations are done"


def started(space, **options):
    """A strategy that knows its knobs."""
    from test_selection import sample, service

    start = service(plan_0_0=sample(10.0)).job.node
    strategy = Experts(start, Settings(options=options), 0)
    assert strategy.state()["symptoms"] == ["initial run", "no baseline"]
    from accelopt.nodes import Result

    strategy.tell(Result(strategy.ask(), space=space))
    return strategy


def test_a_model_is_told_the_fastest_and_the_latest():
    """It was told the last five alone, and could not know what was tried before."""
    strategy = started(MATMUL)
    points = [*MATMUL.points()][:9]
    strategy._tried = [TriedValues(point, 1.0 + n) for n, point in enumerate(points[:8])]
    strategy._tried.append(TriedValues(points[8], inf, "too large"))
    told = strategy._trials("memory")
    assert [row.rpartition(": ")[2] for row in told.latest] == [
        "1 ms, the fastest", "4 ms", "5 ms", "6 ms", "7 ms", "8 ms"
    ]  # fmt: skip
    assert len(told.refused) == 1 and told.tried == tuple(map(name_of, points))


def test_a_kernel_without_knobs_or_with_one_point_ends_the_search():
    assert started(None).converged == "the kernel has no knobs"
    single = Space(kernel="k", knobs=(KnobSpec(name="n", type="int", allowed=(1,)),))
    strategy = started(single)
    job = strategy.ask()
    assert isinstance(job, Job) and job.action.change.values == {"n": 1}
    assert strategy.ask() is None and not strategy.converged  # it is under way


REPLIES = (
    "I would set by to 3.",
    'Sure: {"by": 3, "less": 2}. Good luck!',
    '{"by": 9}',
    '{"by": 6, "less": 5}',
    '{"by": 3, "less": 2}',
    '{"by": 4, "less": 5}',
    '{"by": 4, "less": 0, "warps": 2}',
    '{"by": 1, "less": 0}',
    '{"by": 2, "less": 0}',
)
"""Two in an iteration, of which one is a configuration: rules take over where none can be read."""
UNREAD = 4  # of them, for which is asked once more
FAILURES = (
    'holds no JSON object: "I would set by to 3."',
    "by = 9 is not allowed",
    "that is too little",
    'proposed what was tried: {"by": 3, "less": 2}',
    "there is no knob warps",
    "the model did not answer",
)


def test_a_model_s_prose_unknown_values_repetitions_and_silence_end_nothing(tmp_path):
    """One expert at a time, so that each question follows from what came of the ones before."""
    asked, again = [], []

    def respond(request):
        unread = "could not be read" in request["messages"][-1]["content"]
        (again if unread else asked).append(request)
        return REPLIES[min(len(asked), len(REPLIES)) - 1]

    settings = drive.SETTINGS._replace(
        strategy="experts", iterations=5, window=1, options={"experts": "throughput,memory"}
    )
    silence = ScriptedFault("empty")
    faults = (silence if number == len(REPLIES) + UNREAD else None for number in range(99))
    model = {"attempts": 1}
    with ScriptedServer(respond, faults) as server:
        first = drive.run_toy(tmp_path, server.url, settings=settings, **model)
        [outcome], shop = asyncio.run(first)
        calls = len(server.requests)
        state = tmp_path / "toy_N4" / "search_state.json"
        kept = state.read_text()
        asyncio.run(drive.run_toy(tmp_path, server.url, settings=settings, **model))
        assert len(server.requests) == calls and state.read_text() == kept
    assert shop.evaluations.made == 1 + 3 and outcome.best.latency == 100 / 4 - 5
    proposals = json.loads(kept)["proposals"]
    assert [one["config"] for one in proposals if not one["reason"]] == [
        {"by": 3, "less": 2},
        {"by": 4, "less": 5},
        {"by": 1, "less": 0},
        {"by": 2, "less": 0},
    ]
    reasons = [one["reason"] for one in proposals if one["reason"]]
    assert len(reasons) == len(FAILURES)
    assert all(said in reason for said, reason in zip(FAILURES, reasons, strict=True))
    assert len(again) == UNREAD  # each hears what was wrong, and says the same again
    prompts = [request["messages"][-1]["content"] for request in asked]
    assert EXPERTS["throughput"].bias in prompts[0] and EXPERTS["memory"].bias in prompts[1]
    assert '{"by": 3, "less": 2}: 31.33 ms' in prompts[3]
    assert "that is too little" not in prompts[3] and "that is too little" in prompts[4]
    assert asked[0]["temperature"] == 0.7 and asked[0]["max_tokens"] == 1024
