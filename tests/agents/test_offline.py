"""The offline proposer on toy rewrites: order, chains, what was tried, carrying out from text."""

import asyncio
from dataclasses import replace

import toy
from timed_kernels import correct

from accelopt.agents.offline import OfflineProposer
from accelopt.agents.proposer import KernelView, SlowFastPair, TriedChange
from accelopt.evaluation import Evaluation, Status
from accelopt.nodes import THEN, Node, Plan, Reschedule, Rewrite, made, method_of
from accelopt.stages.experience import Step
from accelopt.stages.samples import different_samples


async def rewrites(node, focus):
    """Three ways down from each cost; the most promising is not the fastest."""
    cost = toy.cost_of(node.source)
    steps = {"Halve": (cost / 2, 0.3), "Shave": (cost - 1, 0.9), "Raise": (cost + 5, 0.5)}
    return [
        made(Rewrite(move=name, sentence=f"{name} {cost:g}."), toy.kernel(to), promise=gain)
        for name, (to, gain) in steps.items()
    ]


async def nothing(node, focus):
    return []


async def predict(node, source):
    return toy.cost_of(source)


def view(tmp_path, **changes):
    source = toy.kernel(100.0)
    start = Node(toy.start(tmp_path), source, Evaluation(status=Status.TIMEOUT))
    return KernelView(start, toy.REFERENCE)._replace(**changes)


def changes(proposer, seen, draws=3):
    async def draw():
        return [await proposer.plan(seen, number, draws) for number in range(draws)]

    return [draft.change for draft in asyncio.run(draw())]


def plans(*args):
    return [change and change.sentence for change in changes(*args)]


def test_predictions_order_the_rewrites_and_extend_them_into_chains(tmp_path):
    drawn = plans(OfflineProposer(rewrites, predict), view(tmp_path))
    assert drawn[0] == THEN.join(["Halve 100.", "Halve 50."])
    assert drawn[1] == THEN.join(["Shave 100.", "Halve 99."])
    assert drawn[2] == THEN.join(["Raise 100.", "Halve 105."])


def test_what_follows_in_a_chain_is_asked_for_of_a_child(tmp_path):
    """What a language does to the kernel that was given alone, it does once."""
    asked = {}

    async def told(node, focus):
        asked[toy.cost_of(node.source)] = node.parent and toy.cost_of(node.parent.source)
        return await rewrites(node, focus)

    plans(OfflineProposer(told, predict), view(tmp_path))
    assert asked.pop(100.0) is None and asked and set(asked.values()) <= {100.0, 50.0, 99.0, 105.0}


def test_without_predictions_promise_decides_and_chains_have_one_step(tmp_path):
    said = plans(OfflineProposer(rewrites), view(tmp_path))
    assert said == ["Shave 100.", "Raise 100.", "Halve 100."]


async def schedules(node, focus):
    """Two sizes of one nest, another one, and a third."""
    stages = {"Fused 8": ["a", "b"], "Fused 4": ["a", "b"], "Apart": ["a"], "Turned": ["b"]}
    return [
        made(
            Reschedule(schedule={"stages": [{"members": of}], "name": name}, sentence=f"{name}."),
            toy.kernel(10.0 + place), promise=0.9 - place / 100, predicted=10.0 + place,
        )
        for place, (name, of) in enumerate(stages.items())
    ]  # fmt: skip


def test_of_schedules_the_fastest_and_one_of_another_kind_are_judged(tmp_path):
    """Issue: three quarters of a run's CPU were the referee on slower kernels of the same kind. What
    failed makes room for the next; one step has one sample."""
    proposer = OfflineProposer(schedules, predict)
    drawn = changes(proposer, view(tmp_path))
    assert [one and one.sentence for one in drawn] == ["Fused 8.", "Apart.", None]
    assert different_samples(drawn[0], 4) == 1 and different_samples(Plan(sentence="x"), 4) == 4
    tried = (TriedChange(drawn[0], "failed"),)
    assert plans(proposer, view(tmp_path, tried=tried)) == ["Fused 4.", "Apart.", None]


def test_what_was_tried_or_misses_the_goal_is_not_proposed(tmp_path):
    proposer = OfflineProposer(rewrites, predict)
    tried = (TriedChange(changes(proposer, view(tmp_path), 1)[0], "failed"),)
    assert plans(proposer, view(tmp_path, tried=tried), 1) == ["Shave 100." + THEN + "Halve 99."]
    said = plans(proposer, view(tmp_path, goal=30.0))
    assert said == ["Halve 100." + THEN + "Halve 50.", None, None]
    assert plans(proposer, view(tmp_path, goal=10.0), 1) == [None]


def test_what_brought_nothing_on_a_kernel_before_comes_last(tmp_path):
    proposer = OfflineProposer(rewrites)
    first, *others = changes(proposer, view(tmp_path))
    before = (TriedChange(first, "0.9 times as fast (on a kernel before this one)", before=True),)
    assert changes(proposer, view(tmp_path, tried=before)) == [*others, first]
    own = (TriedChange(first, "0.9 times as fast"),)
    assert changes(proposer, view(tmp_path, tried=own)) == [*others, None]


def test_a_plan_is_carried_out_from_its_value_alone_and_words_are_not(tmp_path):
    seen = view(tmp_path)
    [planned] = changes(OfflineProposer(rewrites, predict), seen, 1)
    plan = type(planned).model_validate_json(planned.model_dump_json())

    def carried_out(change, sample):
        return asyncio.run(OfflineProposer(rewrites).implement(seen, change, 0, sample))

    assert toy.cost_of(carried_out(plan, 0).source) == 25
    assert toy.cost_of(carried_out(plan, 1).source) == 50  # a shorter chain
    assert carried_out(plan, 1).change == plan.steps[0]
    assert carried_out(Plan(sentence="Halve 100."), 0).source is None
    assert asyncio.run(OfflineProposer(nothing).implement(seen, plan, 0, 0)).source is None


def test_a_change_that_an_older_version_wrote_down_is_read_and_told_in_one_sentence(tmp_path):
    """Versions up to 0.3 rewrote the text of NKI kernels by rules that are gone: their runs are read as before."""
    seen = view(tmp_path)
    row = {**seen.node.record(), "source": toy.kernel(50.0), "label": "plan_0_0"}
    named = {"move": "hoist", "parameters": {"loop": "k"}, "sentence": "Hoist."}
    row["change"] = {"kind": "rewrite", **named}
    old = seen.node.child(row)
    assert method_of(old.change) == "hoist"
    draft = asyncio.run(OfflineProposer(rewrites).implement(seen, old.change, 0, 0))
    assert draft.source is None and draft.reason.endswith("makes this change to this kernel: hoist")


def test_a_lesson_is_the_plan_with_its_lines(tmp_path):
    proposer = OfflineProposer(rewrites)
    start, fast = (
        Node(toy.start(tmp_path), source, toy.verdict(source))
        for source in (toy.kernel(100), toy.kernel(50))
    )
    pair = SlowFastPair(Step(replace(fast, parent=start)).experience(), "Halve 100. It is large.")
    lesson = asyncio.run(proposer.summarize(pair))
    assert lesson.title == "**Halve 100**"
    assert "2.00 times as fast" in lesson.summary
    assert "# before\n    COST = 100" in lesson.summary
    assert "# after\n    COST = 50" in lesson.summary
    same = SlowFastPair(Step(replace(start, parent=start)).experience(), pair.plan)
    assert asyncio.run(proposer.summarize(same)).summary is None


def suggested(proposer, seen):
    return [one.action.sentence for one in asyncio.run(proposer.suggestions(seen.node, 5))]


def test_suggestions_promise_something_and_say_it_once(tmp_path):
    """Where times are predicted, nothing is suggested without one: such a rule was the same schedule that
    another part of the prompt called slower."""

    async def twice(node, focus=""):
        halved = made(
            Rewrite(move="Halve", sentence="Halve it too."), toy.kernel("50.00"), promise=0.2
        )
        return [*await rewrites(node, focus), halved]

    async def some(node, source):
        return None if "99" in source else await predict(node, source)

    seen = view(tmp_path)
    seen = seen._replace(node=replace(seen.node, evaluation=correct(100.0)))
    told = ["Halve 100.", "Shave 100."]
    assert suggested(OfflineProposer(rewrites, predict), seen) == told  # to raise it gains nothing
    assert suggested(OfflineProposer(twice, predict), seen) == told
    assert suggested(OfflineProposer(rewrites, some), seen) == ["Halve 100."]
    assert len(suggested(OfflineProposer(rewrites), seen)) == 3  # nothing is predicted at all
