"""The graph search on planted graphs, driven directly: what it finds, how it ends."""

import random
from collections import deque

import pytest
from test_selection import sample, service
from timed_kernels import correct

from accelopt.errors import ConfigError
from accelopt.evaluation import Bottleneck, Diagnosis, Evaluation, Status
from accelopt.nodes import Node, Result, Rewrite, Want, made
from accelopt.search.strategy import Settings, open_strategy
from accelopt.stages.jobs import by_method

MOVES = ("a", "b", "c", "trap", "snare", "key")


def text(moves):
    return f"def kernel():\n    return {sorted(moves)}\n"


def moves_of(source):
    return frozenset(eval(source.partition("return ")[2]))


def time_of(moves):
    """`trap` and `key` pay together alone; `snare` never does."""
    time = 100.0
    for move, gain in {"a": 0.9, "b": 0.95, "c": 1.02, "trap": 1.15, "snare": 1.3}.items():
        time *= gain if move in moves else 1.0
    time *= 1.05 if "key" in moves else 1.0
    return time * (0.4 if {"trap", "key"} <= moves else 1.0)


def verdict(source, fails):
    if moves_of(source) and fails(moves_of(source)):
        return Evaluation(status=Status.COMPILE_ERROR, message="no")
    ms = time_of(moves_of(source))
    return correct(ms)


def actions(node, promise):
    here = moves_of(node.source)
    return tuple(
        made(Rewrite(move=m, sentence=f"{m}."), text(here | {m}), promise=promise[m])
        for m in MOVES
        if m not in here
    )


def searched(name, seed, evaluations, fails=lambda moves: False, window=4, offered=actions):
    """A search without a loop around it: the strategy, and the kernels in the order of telling."""
    chance = random.Random(seed)
    promise = {move: chance.uniform(0, 0.1) for move in MOVES}
    case = service(plan_0_0=sample(10.0)).job.node.case
    start = Node(case, text(()), verdict(text(()), fails))
    strategy = open_strategy(start, Settings(strategy=name), seed)
    under_way, kernels = deque(), {}
    while len(kernels) < evaluations:
        while len(under_way) < window and (job := strategy.ask()) is not None:
            under_way.append(job)
        if not under_way:
            break
        job = under_way.popleft()
        if job.want is Want.ACTIONS:
            strategy.tell(Result(job, offered(job.node, promise)))
            continue
        source = job.action.source
        assert name == "random" or source not in kernels, "a kernel was built twice"

        evaluation = verdict(source, fails)
        kernels[source] = evaluation
        node = Node(case, source, evaluation, job.node, job.action.change, "plan_0_0")
        strategy.tell(Result(job, nodes=(node,)))
    return strategy, kernels


def test_the_pair_that_pays_only_together_is_found_within_40_evaluations():
    found = [searched("mcgs", seed, 40)[1] for seed in range(20)]
    pairs = sum(any({"trap", "key"} <= moves_of(k) for k in kernels) for kernels in found)
    assert pairs >= 19


def test_kernels_found_on_several_ways_are_one_state():
    strategy, kernels = searched("mcgs", 0, 99)
    assert len(kernels) == 63 == len(set(map(moves_of, kernels)))  # all that there are, each once
    assert strategy.ask() is None
    state = strategy.state()
    assert len(state["states"]) == 64
    assert strategy.best.latency == pytest.approx(time_of({"a", "b", "trap", "key"}))


def test_nothing_to_do_one_thing_or_failures_alone_end_the_search():
    assert searched("mcgs", 0, 9, offered=lambda node, promise: ())[1] == {}

    def single(node, promise):
        return actions(node, promise)[:1] if not moves_of(node.source) else ()

    assert len(searched("mcgs", 0, 9, offered=single)[1]) == 1
    strategy, kernels = searched("mcgs", 0, 99, fails=lambda moves: True)
    assert len(kernels) == len(MOVES) and strategy.ask() is None
    assert strategy.best is strategy.root


def test_a_method_that_always_fails_is_tried_less_and_less():
    def failures(name, seed):
        _, kernels = searched(name, seed, 20, fails=lambda moves: "a" in moves)
        return sum(evaluation.profile is None for evaluation in kernels.values())

    assert sum(failures("mcgs", s) for s in range(9)) < sum(failures("random", s) for s in range(9))


def test_wrong_options_are_one_sentence():
    start = service(plan_0_0=sample(10.0)).job.node
    for options, said in (({"reward": "x"}, "reward=x is unknown"), ({"c": "1"}, "no option 'c'")):
        with pytest.raises(ConfigError, match=said):
            open_strategy(start, Settings(strategy="mcgs", options=options))


def test_a_model_is_allowed_one_method_that_no_rule_offers():
    found = Bottleneck(category="memory", resource="dma", share=0.9, reason="rows are short",
                       methods=("columns", "keep", "set_columns"))  # fmt: skip
    keep = made(Rewrite(move="keep", sentence="Keep it."), "x", promise=0.1)
    [action] = by_method("nki", [keep], Diagnosis(origin="t", bottlenecks=(found,)))
    assert (action.method, action.source, action.key) == ("columns", None, "")
    assert "one method and no other, columns: Let one instruction take" in action.sentence
    assert "It must relieve dma: rows are short." in action.sentence
    assert by_method("nki", [], Diagnosis(origin="t")) == []
    assert action.change.optional  # who finds nothing to use it on is asked for no repair
    assert by_method("nki", [keep], Diagnosis(origin="t", bottlenecks=(found,)), {"columns"}) == []
