"""The inner machine: every declared edge is walked by a planted case, and no other can be."""

import asyncio
import json

import planted_fsm
import pytest
import scripted_developer as scripted
import toy
from scripted_server import ScriptedServer
from test_managers import manage

from accelopt.fsm import fsm_manager
from accelopt.fsm.engine import TERMINAL, FSMEngine, State
from accelopt.fsm.worker import worker_fsm

FORBIDDEN = "x = torch.nn.functional.relu(1)"
GOOD, BROKEN = scripted.written(50), scripted.written(50, "BROKEN = 1")
CASES = {
    "faster": {"generated": [GOOD]},
    "slower": {"generated": [scripted.written(200)]},
    "at the roofline": {"generated": [scripted.written(50, "SOL = 96")]},
    "no code": {"generated": ["I would rather not, and I say so at some length. " * 5]},
    "forbidden": {"generated": [scripted.written(50, FORBIDDEN)]},
    "mended": {"generated": [BROKEN], "repaired": [BROKEN, scripted.written(40)]},
    "never mended": {"generated": [BROKEN], "repaired": [scripted.written(50, FORBIDDEN), BROKEN]},
    "not repaired": {"generated": [BROKEN], "repaired": ["I cannot."]},
    "unread": {"generated": [GOOD], "judged": "dunno", "reflexion": "[1"},
}


def developed(folder, test_code="", rounds=1, **script):
    """A greedy run of one worker a round, and what its workers did."""
    with ScriptedServer(scripted.script(**script)) as server:
        found = manage(
            folder, test_code=test_code, strategy="greedy", num_workers=1, max_rounds=rounds,
            model_config={"url": server.url, "model": "m", "backoff": 0.01},
        )  # fmt: skip
    journal = (folder / "run" / "journal.jsonl").read_text().splitlines()
    told = [json.loads(line) for line in journal]
    results = [value for kind, _, value in told if kind == "result"]
    return found, [result["development"] for result in results], server.requests


def edges(path):
    return set(zip(path, [*path[1:], TERMINAL]))


def declared(transitions):
    return {(name, following) for name, known in transitions.items() for following in known}


def left(log):
    """The edges that a log tells of."""
    lines = log.read_text().splitlines()
    return {tuple(line.split()[-3::2]) for line in lines if " leave " in line}


class Poor(planted_fsm.Resources):
    """With one resource, all is tried soon."""

    resources = ("dma",)


def test_every_edge_is_walked(tmp_path):
    walked, outer = set(), set()
    for name, script in CASES.items():
        _, [development], _ = developed(tmp_path / name, **script)
        walked |= edges(development["path"])
        assert development["finding"]["reflexion"] is not None
        outer |= left(tmp_path / name / "run" / "manager.log")
    # Nothing is known of a kernel that cannot be timed.
    walked |= edges(asyncio.run(of_a_broken_parent(tmp_path / "broken")))
    assert walked == declared(worker_fsm.TRANSITIONS)
    failing = manage(tmp_path / "failing", extra="BROKEN = 1")
    poor = manage(tmp_path / "poor", backend="test_worker:Poor", max_rounds=99)
    assert not failing["success"] and poor["stop_reason"] == "nothing is left to try"
    for name in ("failing", "poor"):
        outer |= left(tmp_path / name / "run" / "manager.log")
    assert declared(fsm_manager.TRANSITIONS) <= outer


async def of_a_broken_parent(folder):
    from accelopt.fsm.worker.context import WorkerSetup
    from accelopt.fsm.worker.worker_fsm import context_of, walk
    from accelopt.fsm.worker_options import ModelChoice, WorkerOptions, open_run
    from accelopt.nodes import Job, Node, Want
    from accelopt.stages.planning import view_kernel

    case = planted_fsm.start(folder, extra="BROKEN = 1")
    options = WorkerOptions(backend="planted_fsm:Resources", workers=1)
    async with open_run(folder / "run", options, ModelChoice()) as run:
        source = run.workshop.language.source(case)
        node = Node(case, source, toy.verdict(source))
        view = await view_kernel(node, run.workshop.language)
        job = Job(0, 1, Want.DEVELOP, node, focus="1")
        walked = await walk(context_of(job, view, run, WorkerSetup()))
        assert walked.result.nodes == ()
        return walked.result.development.path


def test_an_attempt_has_times_reasons_and_its_error(tmp_path):
    _, [development], _ = developed(tmp_path / "faster", **CASES["faster"])
    attempt = development["finding"]["attempt"]
    assert (attempt["time_before_ms"], attempt["time_after_ms"]) == (100.0, 50.0)
    assert attempt["improvement_pct"] == 50.0 and attempt["is_improvement"]
    assert attempt["root_cause"] == "It loads too much."
    assert attempt["config_changes"] == {"COST": "100.0->50"}
    assert development["finding"]["method"] == "gain_dma"
    assert development["finding"]["change"] == "Make COST 50."
    _, [development], _ = developed(tmp_path / "broken", **CASES["not repaired"])
    attempt = development["finding"]["attempt"]
    assert not attempt["passed_verification"] and "BROKEN" in attempt["error_message"]
    assert attempt["time_after_ms"] is None


def test_what_was_learned_stands_in_the_next_prompt(tmp_path):
    _, _, requests = developed(tmp_path, rounds=2, **CASES["never mended"])
    asked = [r["messages"][1]["content"] for r in requests if scripted.role_of(r) == "generator"]
    assert len(asked) == 2
    assert "Do not load twice." not in asked[0] and "Nothing yet." in asked[0]
    assert "Do not load twice." in asked[1] and "BROKEN" in asked[1]


def test_the_judge_is_asked_once_for_all_workers_of_a_kernel(tmp_path):
    with ScriptedServer(scripted.script([GOOD])) as server:
        model = {"url": server.url, "model": "m"}
        manage(tmp_path, max_rounds=1, model_config=model)
    roles = [scripted.role_of(request) for request in server.requests]
    assert roles.count("judge") == 1 and roles.count("generator") == 4
    asked = [r["messages"][1]["content"] for r in server.requests
             if scripted.role_of(r) == "generator"]  # fmt: skip
    assert sum("It multiplies." in text for text in asked) == 1


def test_the_users_own_test_may_refuse_and_never_accept(tmp_path):
    beside = "(pathlib.Path(__file__).parent / 'kernel.py')"
    refuses = f"import pathlib\nassert 'COST = 50' not in {beside}.read_text()\n"
    found, [development], _ = developed(tmp_path / "a", test_code=refuses, **CASES["faster"])
    assert found["best_time_ms"] == 100.0
    assert "the test refuses" in development["finding"]["attempt"]["error_message"]
    found, [development], _ = developed(
        tmp_path / "b", test_code="import sys; sys.exit(0)", **CASES["never mended"]
    )
    assert found["best_time_ms"] == 100.0
    found, _, _ = developed(tmp_path / "c", test_code="import kernel", **CASES["faster"])
    assert found["best_time_ms"] == 50.0
    found = manage(tmp_path / "d", test_code="raise SystemExit('no')")
    assert not found["success"] and "no" in found["error"]


class Named(State):
    def __init__(self, name, following):
        self.name, self.following = name, following

    def execute(self, ctx):
        ctx.append(self.name)
        return self.following


def test_the_engine_walks_declared_edges_and_refuses_others():
    walked = []
    engine = FSMEngine().add_state(Named("A", "B")).add_state(Named("B", TERMINAL))
    engine.run("A", walked)
    assert walked == engine.path == ["A", "B"]
    with pytest.raises(ValueError, match="no state 'C'; there are A, B"):
        engine.run("C", [])
    lost = (
        FSMEngine(transitions={"A": ("B",)}).add_state(Named("A", "Z")).add_state(Named("B", "A"))
    )
    with pytest.raises(ValueError, match="no state 'Z'"):
        lost.run("A", [])
    with pytest.raises(ValueError, match="B leads to 'A', which is not declared"):
        lost.run("B", [])


def test_the_published_states_can_be_taken_one_by_one():
    """The names of the published machines: `docs/fsm.md`."""
    from accelopt.fsm.states import TRANSITIONS, Finalize, VerifyInitialKernel
    from accelopt.fsm.worker.states import RefineKernel

    assert set(worker_fsm.PUBLISHED_NAMES.values()) == set(worker_fsm.TRANSITIONS)
    assert worker_fsm.PUBLISHED_NAMES["REFINE_WITH_LLM"] == RefineKernel.name
    engine = FSMEngine(transitions=TRANSITIONS).add_state(VerifyInitialKernel())
    with pytest.raises(ValueError, match="no state 'Finalize'; there are VerifyInitialKernel"):
        engine.run(Finalize.name, None)
