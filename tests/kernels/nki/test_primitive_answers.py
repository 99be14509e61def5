"""A planner may answer with primitives of a nest: it is told what there is, and told in one sentence what
is wrong."""

import json

import pytest

from accelopt.evaluation import Case, Evaluation, Status
from accelopt.kernels.nki.actions.priced_nests import OF_PRODUCTS, Tuning
from accelopt.kernels.nki.actions.primitive_answers import (
    AnswerRefused,
    NestKernel,
    OwnNest,
    answered,
    brief,
    listing,
    means_nest,
    near,
    table,
)
from accelopt.kernels.nki.nests.lowering import Interface
from accelopt.kernels.nki.nests.nest import default_nest
from accelopt.kernels.nki.nests.primitives import Columns, Cores, Orient, Split, applied
from accelopt.kernels.nki.rescheduling.lifted_kernel import Lifted
from accelopt.nodes import Node
from tests.kernels.nki.lift import algorithms

PRODUCT = Lifted(algorithms.matmul(2048, 256, 1024), Interface())
OWN = OwnNest(default_nest(PRODUCT.algorithm), False)
ASKED = (
    Columns(definition="out", size=512),
    Orient(definition="out", side="left", way="turned"),
)
REPLIES = {
    "alone": "{}",
    "in a block below prose": "This turns lhs:\n```json\n{}\n```\n",
    "in an object": '{{"primitives": {}}}',
    "with a comma too many": "I choose {},",
}
REFUSED = {
    "an unknown kind": ('[{"kind": "fuse"}]', "Input tag 'fuse'"),
    "a wrong type": ('[{"kind": "columns", "definition": "out", "size": "two"}]', "valid integer"),
    "a field too many": ('[{"kind": "inline", "definition": "out", "why": ""}]', "not permitted"),
    "no such definition": ('[{"kind": "apart", "definition": "y"}]', "primitive 1, apart: .* no definition y"),
    "no such axis": ('[{"kind": "split", "definition": "out", "axis": "z", "size": 2}]', "primitive 1, split"),
    "no columns": ('[{"kind": "columns", "definition": "out", "size": 0}]', "primitive 1, columns, size: .* 1"),
    "a tile of less": ('[{"kind": "tile", "definition": "out", "axis": "m", "size": -1}]', "primitive 1, tile, size"),
    "parts of nothing": ('[{"kind": "partition", "definition": "out", "axes": [{"axis": "m", "size": 0}]}]', "axes, 0, size"),
    "an axis twice": ('[{"kind": "partition", "definition": "out", "axes": [{"axis": "m", "size": 4}, {"axis": "m", "size": 2}]}]', "m once"),
    "more than there is": ('[{"kind": "partition", "definition": "out", "axes": [{"axis": "m", "size": 9999}]}]', "2048 elements of m, not 9999"),
    "a nest without fields": ('{"stages": [{"rows": 1}]}', "field stages.0.* of the nest is wrong"),
    "a nest of others": ('{"stages": [{"members": ["y"]}]}', "y is no definition of this kernel"),
}  # fmt: skip


def test_the_brief_has_algorithm_nest_and_primitives() -> None:
    faster = applied(ASKED[0], PRODUCT.algorithm, OWN.nest)
    told = brief(PRODUCT, OWN, [(faster, 3.0), (OWN.nest, 4.0)])
    text = told["schedules"]
    assert "out[m, n] = sum_k lhs[m, k] * rhs[k, n]" in text
    assert "was written by no nest" in text and json.dumps(list(OWN.nest.stages[0].members)) in text
    assert all(line in told["primitives"] for line in table())
    assert f"- 3 ms: {faster.model_dump_json(exclude_defaults=True)}" in text
    assert "- 4 ms: the nest above" in text
    assert (
        "The nest that wrote this kernel"
        in brief(PRODUCT, OWN._replace(written=True), [])["schedules"]
    )


def test_what_applies_next_has_both_cores_and_is_explained_once() -> None:
    """`cores` was told of and never offered; every answer had the meanings of all primitives again, and axes
    that no line said the length of."""
    lifted = Lifted(algorithms.matmul(2048, 256, 1024), Interface(), dialect="nki")
    found = near(lifted, OWN.nest, "trn2")
    times = [1.0 for _ in range(len(found.made) + 1)]
    assert Cores(definition="out", axis="m") in [one.primitive for one in found.made]
    assert not any(isinstance(one.primitive, Cores) for one in near(PRODUCT, OWN.nest, "trn1").made)
    text = listing(lifted, OWN, [], NestKernel(OWN.nest, ""), found, times)
    assert "its axes: m 2048, n 1024, k 256" in text and all(line in text for line in table())
    then = listing(lifted, OWN, ASKED, NestKernel(OWN.nest, ""), found, times)
    assert table()[0] not in then and "Without primitives, `schedules` says what each does." in then


def test_what_has_nothing_to_be_used_on_is_known() -> None:
    """A graph search asked a model for one more column of a product where there was no product."""
    case = Case(service_name="a", case_name="a", problem="a", values={}, task="a.py", kernel="a.py")
    node = Node(case, "", Evaluation(status=Status.MISSING))
    softmax = Lifted(algorithms.softmax(256, 96), Interface(), dialect="nki")
    assert Tuning("trn2", lambda _: softmax).useless(node) == {*OF_PRODUCTS, "skip", "diagonal"}
    useless = {"append", "skip", "cores", "descriptors", "diagonal"}  # of the older dialect
    assert Tuning("trn2", lambda _: PRODUCT).useless(node) == useless


@pytest.mark.parametrize("form", REPLIES)
def test_an_answer_becomes_the_kernel_of_its_primitives(form: str) -> None:
    reply = REPLIES[form].format(json.dumps([one.model_dump() for one in ASKED]))
    assert means_nest(reply)
    nest, lowered = answered(reply, PRODUCT, OWN, "trn1")
    wanted = OWN.nest
    for one in ASKED:
        wanted = applied(one, PRODUCT.algorithm, wanted)
    assert nest == wanted and lowered == PRODUCT.lowered(wanted)
    assert answered(nest.model_dump_json(), PRODUCT, OWN, "trn1") == (nest, lowered)


@pytest.mark.parametrize("name", REFUSED)
def test_a_wrong_answer_is_refused_in_one_sentence(name: str) -> None:
    reply, reason = REFUSED[name]
    assert means_nest(reply)
    with pytest.raises(AnswerRefused, match=reason) as refusal:
        answered(reply, PRODUCT, OWN, "trn1")
    text = str(refusal.value)
    assert text.endswith(".")
    assert "\n" not in text


def test_what_is_refused_midway_is_named_by_its_number() -> None:
    split = Split(definition="out", axis="m", size=512).model_dump()
    with pytest.raises(AnswerRefused, match="primitive 2, split"):
        answered(json.dumps([split, split]), PRODUCT, OWN, "trn1")


def test_plans_and_code_mean_no_nest() -> None:
    for reply in (
        "Keep rhs.",
        "```python\nx = {'rows': 1}\n```",
        json.dumps({"plan": "m"}),
        "[1, 2]",
    ):
        assert not means_nest(reply)
