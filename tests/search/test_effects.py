"""What is learned of changes: alone, beside each other, and where nothing is known."""

from accelopt.nodes import Action, Rewrite
from accelopt.search.effect_model import Effects
from accelopt.search.search_graph import Edge


def step(method, promise=0.0):
    change = Rewrite(move=method, sentence=f"{method}.")
    return Edge(Action(change=change, method=method), promise)


A, B, C, D = map(step, "abcd")


def test_before_anything_is_known_promises_decide_and_more_is_hoped_of_more_at_once():
    one, better, two = Effects().hopes([(A,), (step("e", 0.1),), (A, B)], [])
    assert one < better and one < two


def test_what_two_bring_together_alone_is_hoped_wherever_they_meet():
    effects = Effects()
    for made, worth in (((A,), -0.1), ((B,), 0.0), ((A, B), 0.8), ((C,), 0.05), ((C, D), 0.0)):
        effects.add(made, worth)
    both, single, other = effects.hopes([(A, B, C), (A, C), (B, C)], [])
    assert both > 0.8 > max(single, other)


def test_what_is_under_way_is_not_looked_for_twice_and_what_fails_is_hoped_least():
    effects = Effects()
    effects.add((A,), -0.7)
    failed, fresh = effects.hopes([(A, B), (C, B)], [])
    assert failed < fresh
    _, asked = effects.hopes([(A, B), (C, B)], [(C, B)])
    assert asked < fresh


def test_a_promise_that_changes_changes_what_was_learned_of_it():
    effects, edge = Effects(), step("a", 0.5)
    effects.add((edge,), 0.0)
    edge.estimate = 0.0
    [hope] = effects.hopes([(edge,)], [])
    assert abs(hope) < 0.1
