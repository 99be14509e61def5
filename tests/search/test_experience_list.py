"""Which pairs are learned from, and how experiences are kept."""

from test_selection import MISSING, sample, service

from accelopt.evaluation import Case, Evaluation, Profile, Status
from accelopt.nodes import Node, Plan
from accelopt.script_file_columns import NO_OPTIMIZATION_TITLE, Experience
from accelopt.search.experience_list import MemorySettings, draw, remember, select_contrasts
from accelopt.stages.experience import Step

CASE = Case(problem="p", values={}, task="t", kernel="k")


def contrasts(*results, topk=8, max_threshold=1.04, min_threshold=1.15):
    found = select_contrasts(results, MemorySettings(max_threshold, min_threshold, topk))
    return [(node.parent.name, node.label, round(node.speedup, 3)) for node in found]


def test_of_each_plan_the_fastest_winner_or_the_slowest_loser():
    result = service(
        plan_0_0=sample(5.0),
        plan_0_1=sample(4.0),
        plan_1_0=sample(12.0),
        plan_1_1=sample(20.0),
        plan_2_0=sample(9.8),
        plan_3_0=sample(10.5),
        plan_4_0=sample(None),
        plan_5_0=MISSING,
    )
    assert contrasts(result) == [("s0", "plan_0_1", 2.5), ("s0", "plan_1_1", 0.5)]


def test_winners_take_half_of_the_places_and_losers_the_rest():
    fast = {f"plan_{i}_0": sample(1.0 + i / 10) for i in range(6)}
    slow = {f"plan_{i}_0": sample(20.0 + i) for i in range(6, 12)}
    found = contrasts(service("a", **fast), service("b", **slow), topk=4)
    assert [name for name, _, _ in found] == ["a", "a", "b", "b"]
    assert found[0][2] > found[1][2] and found[2][2] < found[3][2]
    assert len(contrasts(service("a", **fast), topk=8)) == 4


def test_pairs_are_presented_slow_to_fast():
    result = service(plan_0_0=sample(4.0), plan_1_0=sample(20.0))
    faster, slower = (
        Step(node).experience() for node in select_contrasts([result], MemorySettings())
    )
    assert (faster.slow_kernel, faster.fast_kernel) == ("parent 10.0", "kernel 4.0")
    assert (slower.slow_kernel, slower.fast_kernel) == ("kernel 20.0", "parent 10.0")


def experience(title, speedup=1.5, slow="a", fast="b", summary="words"):
    return Experience(
        service_name="s", case_name="c", id="plan_0_0", speedup_original=speedup, speedup=speedup,
        slow_kernel=slow, fast_kernel=fast, title=f"**{title}**", summary=summary,
        origin=f"from {title}",
    )  # fmt: skip


def test_first_in_first_out_newest_first():
    old = [experience(f"old {i}", slow=f"{i}") for i in range(3)]
    new = [experience("new", slow="n")]
    kept = remember(new, old, 3)
    assert [item.title for item in kept] == ["**new**", "**old 0**", "**old 1**"]
    assert remember(new, old, 0) == []


def test_what_taught_nothing_takes_no_place():
    nothing = experience("x", summary=None).model_copy(update={"title": NO_OPTIMIZATION_TITLE})
    assert remember([nothing], [experience("kept")], 1)[0].title == "**kept**"


def test_the_same_lesson_again_counts_and_keeps_the_larger_speedup():
    new, old = experience("Same thing"), experience("same thing.", speedup=2.0, slow="other")
    [merged] = remember([new], [old], 16)
    assert (merged.seen, merged.speedup) == (2, 2.0)
    assert merged.origin == "from Same thing; from same thing."
    [pair] = remember([experience("one")], [experience("two")], 16)
    assert pair.seen == 2  # the same two kernels under another title


def test_the_same_change_to_the_same_lines_of_a_case_is_one_lesson():
    """However it is titled; a rewritten line, another case or the other outcome are another lesson."""
    first = experience("one", 1.5, "a", "b").model_copy(update={"change": "fuse\nx = a + b"})
    again = experience("two", 1.2, "c", "d").model_copy(update={"change": "fuse\nx = a + b"})
    [merged] = remember([again], [first], 16)
    assert (merged.seen, merged.speedup, merged.origin) == (2, 1.5, "from two; from one")
    for update in (
        {"change": "fuse\nx = a * b"},
        {"change": "widen\nx = a + b"},
        {"case_name": "other"},
        {"speedup_original": 0.8},
        {"change": ""},
    ):
        assert len(remember([again.model_copy(update=update)], [first], 16)) == 2


def node(source, latency, parent=None, change=None):
    profile = Profile.from_metadata({"latency": latency})
    return Node(CASE, source, Evaluation(status=Status.CORRECT, profile=profile), parent, change)


def test_a_change_is_told_by_the_text_of_its_lines():
    change = Plan(sentence="t", method="fuse", places=(2,))
    parents = [node(source, 2.0) for source in ("x\n  y = 1\n", "new\n y = 1\n", "x\nz\n")]
    said = [Step(node("", 1.0, parent, change)).experience().change for parent in parents]
    assert said[0] == said[1] == "fuse\ny = 1" != said[2]
    assert not Step(node("", 1.0, parents[0], Plan(sentence="words"))).experience().change


def test_a_foreign_memory_is_drawn_in_its_order_without_repetition():
    items = [experience(str(i)) for i in range(10)]
    drawn = draw(items, 4)
    assert len(drawn) == 4
    assert drawn == sorted(drawn, key=items.index)
    assert draw(items, 40) == items
