"""Graph search with a learned graph of methods: rollouts, what is backed up, and what is carried over."""

from collections import deque
from math import log
from statistics import median

import landscape
import pytest
from driving import Driven
from test_selection import sample, service
from test_strategies import find
from timed_kernels import correct

from accelopt.errors import ConfigError
from accelopt.evaluation import Evaluation, Status
from accelopt.nodes import Node, Result, Rewrite, Want, made
from accelopt.search.method_catalog import ReGraph, Tally, build_regraph
from accelopt.search.regraph import ROLLOUT_MAX_STEPS, TRUST, upper_bound
from accelopt.search.search_graph import Edge
from accelopt.search.strategy import Settings, open_strategy
from accelopt.stages.experience import transitions_of

SEEN = 64  # evaluations on the first kernel


class Scripted:
    """Kernels by name, each with its time (None: it fails) and the actions on it."""

    def __init__(self, times, actions, **options):
        self.times, self.listed = times, actions
        case = service(plan_0_0=sample(10.0)).job.node.case
        start = Node(case, self.source("root"), self.verdict("root"))
        self.search = open_strategy(start, Settings(strategy="regraph", options=options))
        self.under_way, self.built = deque(), []

    def source(self, name):
        return f"def kernel():\n    return {name!r}\n"

    def verdict(self, name):
        ms = self.times[name]
        if ms is None:
            return Evaluation(status=Status.COMPILE_ERROR, message="no")
        return correct(ms)

    def name(self, source):
        return source.split("'")[1]

    def go(self):
        """One job after the other until nothing is left."""
        while (job := self.search.ask()) is not None:
            if job.want is Want.ACTIONS:
                self.search.tell(Result(job, tuple(self.offered(self.name(job.node.source)))))
                continue
            name = self.name(job.action.source)
            self.built.append(name)
            made_of = (job.node.case, job.action.source, self.verdict(name), job.node)
            node = Node(*made_of, job.action.change, "p_0_0")
            self.search.tell(Result(job, nodes=(node,)))
        return self

    def offered(self, name):
        for method, to, promise in self.listed.get(name, ()):
            change = Rewrite(move=method, sentence=f"{method} to {to}.")
            yield made(change, self.source(to), promise=promise)

    def edges(self, name):
        states = {self.name(s.node.source): s for s in self.search._states.values()}
        return {edge.action.method: edge for edge in states[name].edges}


def test_the_best_of_a_success_and_its_rollout_is_told_to_the_way_there():
    search = Scripted(
        {"root": 100.0, "a": 90.0, "ab": 80.0, "abc": 70.0, "abcd": 60.0},
        {"root": [("a", "a", 0.1)], "a": [("b", "ab", 0.1)], "ab": [("c", "abc", 0.1)],
         "abc": [("d", "abcd", 0.1)]},
    ).go()  # fmt: skip
    assert search.built == ["a", "ab", "abc", "abcd"] and ROLLOUT_MAX_STEPS == 2
    # by hand: the rollout of `a` is `ab`, `abc`; then a way of its own leads down to `abcd`
    first, deeper = log(100 / 70), log(100 / 60)
    assert search.edges("root")["a"].total == pytest.approx(first + deeper)
    assert search.edges("a")["b"].total == pytest.approx(log(100 / 80) + deeper)
    assert search.edges("ab")["c"].total == pytest.approx(first + deeper)
    assert search.edges("abc")["d"].total == pytest.approx(deeper)
    assert all(
        edge.in_flight == 0
        for name in ("root", "a", "ab", "abc")
        for edge in search.edges(name).values()
    )
    followed = [event.rollout for event in search.search._events]
    assert followed == [None, 1, 1, None]  # job 0 lists the root's actions


def test_a_rollout_ends_with_its_first_failure():
    search = Scripted(
        {"root": 100.0, "a": 90.0, "ab": None, "ac": 50.0},
        {"root": [("a", "a", 0.1)], "a": [("b", "ab", 0.2), ("c", "ac", 0.1)]},
    ).go()
    assert search.built == ["a", "ab", "ac"]
    assert [event.rollout for event in search.search._events] == [None, 1, None]
    assert search.edges("a")["b"].closed
    assert search.edges("root")["a"].total == pytest.approx(log(100 / 90) + log(2))


def test_equal_kernels_of_one_list_are_built_once_and_no_state_is_twice_on_a_way():
    search = Scripted(
        {"root": 100.0, "a": 90.0, "b": 95.0},
        {"root": [("a", "a", 0.1), ("again", "a", 0.2), ("b", "b", 0.1)],
         "a": [("back", "root", 0.5), ("b", "b", 0.1)], "b": [("a", "a", 0.3), ("back", "root", 0.1)]},
    ).go()  # fmt: skip
    assert sorted(search.built) == ["a", "b"]
    for event in search.search._events:
        keys = [state.node.key for state, _ in event.way]
        assert len(keys) == len(set(keys))


def test_the_published_bound_is_the_mean_and_what_a_visit_may_still_find_out():
    edge = Edge(action=None, estimate=0.1, visits=3, total=6.0, in_flight=1)
    assert upper_bound(edge, 7, 0.0) == pytest.approx(2.0 + (2 * log(8) / 5) ** 0.5)
    assert upper_bound(edge, 7, 0.4) - upper_bound(edge, 7, 0.0) == pytest.approx(0.5 * 0.4 / 4)
    assert upper_bound(Edge(action=None, estimate=0.1), 0, 1.0) == pytest.approx(0.5)


def test_a_hard_filter_leaves_out_what_never_followed_a_method():
    def first_built(options, learned):
        search = Scripted(
            {"root": 100.0, "a": 90.0, "b": 90.0},
            {"root": [("a", "a", 0.3), ("b", "b", 0.1)]}, **options,
        )  # fmt: skip
        search.search.learn(learned)
        return search.go().built

    after = ReGraph(
        edges={"START": {"b": Tally(count=1, mean_gain=-1.0)}}, nodes={"b": Tally(count=1)}
    )
    assert first_built({"filter": "hard"}, after) == ["b"]
    assert all(first_built({"filter": name}, after) == ["a", "b"] for name in ("soft", "off"))
    nothing = ReGraph(edges={"other": {"b": Tally(count=1)}})
    assert first_built({"filter": "hard"}, nothing) == ["a", "b"]


def test_wrong_options_are_one_sentence():
    for options, said in (({"filter": "x"}, "filter=x is unknown; there are soft, hard, off"),
                          ({"c": "1"}, "no option 'c', but reward, filter")):  # fmt: skip
        with pytest.raises(ConfigError, match=said):
            Scripted({"root": 1.0}, {}, **options)


@pytest.mark.parametrize("window", [1, 4])
def test_rollouts_are_charged_and_a_row_is_left_for_each_evaluation(tmp_path, window):
    driven = Driven("regraph", landscape.case(tmp_path, 7), 7, 40, window=window)
    rows = list(transitions_of(driven.start, driven.results, "planted"))
    assert len(driven.kernels) == 40 == len(rows) and [row.t for row in rows] == list(range(40))
    assert any(event.rollout is not None for event in driven.strategy._events)
    by_hand = [r for r in driven.results if r.job.want is Want.BUILD and not r.nodes[0].missing]
    for row, result in zip(rows, by_hand, strict=True):
        assert row.to_method == result.job.action.method and row.ok == (row.mean_ms is not None)
        if row.ok:
            assert row.gain == pytest.approx(log(result.job.node.latency / row.mean_ms))
    froms = {row.from_method for row in rows}
    assert "START" in froms and len(froms) > 3


class Carried:
    """Evaluations until 95% of the optimum, in log speedup, on the twin of a kernel that was searched."""

    def __init__(self, folder, seed):
        first = Driven("regraph", landscape.case(folder, seed), seed, SEEN)
        self.learned = build_regraph(transitions_of(first.start, first.results, "planted"))
        self.twin, self.seed = landscape.case(folder, seed, twin=1), seed
        land = landscape.Landscape.of(self.twin)
        self.goal = landscape.START * (land.optimum / landscape.START) ** 0.95

    def needed(self, graph=None):
        return len(Driven("regraph", self.twin, self.seed, 500, self.goal, graph).kernels)


def contrary(graph):
    def turned(tally):
        return tally.model_copy(update={"mean_gain": -tally.mean_gain})

    return ReGraph(
        nodes={name: turned(tally) for name, tally in graph.nodes.items()},
        edges={a: {b: turned(t) for b, t in after.items()} for a, after in graph.edges.items()},
    )


# Seeds of landscapes that nothing was chosen on, and none of the other tests knows.
FRESH = range(2000, 2100)


@pytest.mark.slow
def test_a_learned_graph_saves_evaluations_on_the_next_kernel(tmp_path):
    pairs = [Carried(tmp_path, seed) for seed in FRESH]
    off = median(pair.needed() for pair in pairs)
    learned = median(pair.needed(pair.learned) for pair in pairs)
    assert learned <= 0.7 * off


@pytest.mark.slow
def test_a_misleading_graph_costs_a_quarter_at_most(tmp_path):
    pairs = [Carried(tmp_path, seed) for seed in FRESH[:20]]
    off = median(pair.needed() for pair in pairs)
    misled = median(pair.needed(contrary(pair.learned)) for pair in pairs)
    assert misled <= 1.25 * off


def test_what_is_known_elsewhere_is_trusted_as_far_as_it_comes_true(tmp_path):
    pair = Carried(tmp_path, 2000)

    def trusted(graph):
        return Driven("regraph", pair.twin, 2000, 30, learned=graph).strategy.trust

    assert trusted(pair.learned) > 0.7 and trusted(contrary(pair.learned)) == 0
    assert trusted(None) == TRUST


def test_a_sweep_sets_the_knobs_of_what_succeeded_before_the_way_there_is_judged(tmp_path):
    found = find(tmp_path / "all", "regraph", evaluations=24, options={"sweep": "2"})
    assert len(found.kernels) == 24
    swept = [r for r in found.results if r.job.action and r.job.action.method == "set_knobs"]
    assert swept and len(swept) <= 2 * sum(r.job.want is Want.SPACE for r in found.results)
    events = found.strategy.state()["events"]
    assert all(e["rollout_of"] is not None for e in events if e["canonical_method"] == "set_knobs")
    few = find(tmp_path / "few", "regraph", evaluations=8, options={"sweep": "2"})
    assert few.kernels == found.kernels[:8]
    with pytest.raises(ConfigError, match="sweep=many is unknown"):
        find(tmp_path / "none", "regraph", options={"sweep": "many"})
