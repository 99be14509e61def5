"""Kernels that a model lists for the graph search: relabelled, built once each, the same when resumed."""

import asyncio
import json

import models
from drive import SETTINGS, run_toy
from scripted_server import ScriptedServer

from accelopt.agents.lister import read_candidates
from accelopt.agents.proposer import Listed, WrittenKernel
from accelopt.kernels.moves import METHODS, what_it_does
from accelopt.nodes import Plan
from accelopt.search.method_catalog import read_learned
from accelopt.stages.experience import METRICS

REGRAPH = SETTINGS._replace(strategy="regraph", evaluations=10)


def test_a_models_kernels_are_built_by_their_names_in_the_catalog(tmp_path):
    asked = []

    def respond(request):
        asked.append((models.role_of(request), request["messages"][-1]["content"]))
        return models.respond(request)

    with ScriptedServer(respond) as server:
        [outcome], shop = asyncio.run(run_toy(tmp_path, server.url, settings=REGRAPH))
    assert outcome.speedup > 1 and shop.evaluations.made == 10 + 1
    made = [node for node in outcome.nodes if isinstance(node.change, Plan)]
    assert {node.change.method for node in made} <= {"Shave!", "halving", "shave"} and made
    rows = read_learned(tmp_path).dataset.rows  # "the shave" is "Shave!"
    assert {row.to_method for row in rows} <= {"Shave!", "halving", "divide"}
    assert not any(role in ("planner", "executor") for role, _ in asked)
    prompts = [text for role, text in asked if role == "lister"]
    assert len({text.partition("# The kernel")[2].partition("# What")[0] for text in prompts}) > 1
    report = json.loads((tmp_path / "toy_N4" / METRICS).read_text())
    assert report["relabelled_existed"]["tried"] > 0 and report["tokens_per_correct_kernel"] > 0
    with ScriptedServer(lambda request: 1 / 0) as nobody:
        [again], _ = asyncio.run(run_toy(tmp_path, nobody.url, settings=REGRAPH))
    assert [node.source for node in again.nodes] == [node.source for node in outcome.nodes]


def test_known_methods_say_what_is_done():
    """`schedule` was told as knobs of a run, and what they raise (issue 41)."""
    told = [what_it_does(name, method.language) for name, method in METHODS.items()]
    assert all(told) and not any("raises" in said or "try" in said.split() for said in told)


def test_replies_are_read_and_what_is_wrong_is_said_once_more():
    good = {"think": "t", "method": "m", "detail": "d", "code": "def kernel():\n    pass"}
    assert read_candidates(json.dumps({"candidates": [good]})) == Listed(
        (WrittenKernel("m", "d", good["code"]),)
    )
    some = read_candidates(f"Here:\n```json\n{json.dumps([good, {'method': 'x'}, 3])}\n```")
    assert some.candidates[0].method == "m"
    assert some.reason == "candidate 2 has no `code`"
    fenced = {**good, "code": "```python\ndef kernel():\n    pass\n```"}
    assert read_candidates(json.dumps([fenced])).candidates == (
        WrittenKernel("m", "d", good["code"]),
    )
    diff = "--- a\n+++ b\n@@ -1,2 +1,2 @@\n def kernel():\n-    pass\n+    return 1\n"
    patched = json.dumps([{**good, "code": diff}])
    [fits] = read_candidates(patched, "def kernel():\n    pass\n").candidates
    assert fits.code.endswith("return 1\n")
    refused = read_candidates(patched, "def other():\n    pass\n")
    assert refused == "candidate 1 has a diff that does not fit the kernel"
    lines = read_candidates(json.dumps([{**good, "code": good["code"].splitlines()}]))
    assert lines.candidates[0].code == good["code"]
    nameless = '[{"method": "", "code": "x"}]'
    for wrong in ("", "no", "{", "[]", '{"candidates": 3}', nameless, "[" * 10**5):
        assert isinstance(read_candidates(wrong), str)


def test_a_plan_carries_its_kernel_whatever_it_holds():
    code = 'def kernel():\n    """```python"""\n    return 1'
    plan = WrittenKernel("m", "a\n```\nb" * 300, code).plan("method")
    assert plan.kernel == code and plan.method == "method" and len(plan.sentence) < 600
    assert Plan(sentence="words").kernel is None
