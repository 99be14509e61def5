"""Whether what failed is repeated less often when it was reflected on, in this run and in the next."""

import asyncio
import json
import re

import drive
import planted_fsm
import pytest
import scripted_developer as scripted
import toy
from models import respond
from scripted_server import ScriptedServer
from test_managers import manage

from accelopt.agents.experience_text import lessons_text
from accelopt.errors import ConfigError
from accelopt.stages.experience import read_findings
from accelopt.stages.jobs import Knowledge

METHODS = [f"{kind}_{number}" for kind in ("gain", "break") for number in range(8)]


class Engineer:
    """Writes by a method that the prompt does not warn of, where it reads the warnings; half of the
    methods break the kernel. It reflects by naming the method that broke."""

    def __init__(self, reads):
        self.reads = reads
        self.broke = []

    def __call__(self, request):
        role, user = scripted.role_of(request), request["messages"][-1]["content"]
        if role == "judge":
            return "```json\n[]\n```"
        if role == "reflector":
            method = re.findall(r"DONE = \['(\w+)'\]", user)[-1]
            told = {"lessons": [f"{method} is what it is"]}
            if "failed" in user:
                told["avoid_patterns"] = [f"{method} breaks it"]
            return f"```json\n{json.dumps(told)}\n```"
        if role == "fixer":
            return "It cannot be mended."
        return self.generate(user)

    def generate(self, user):
        said = user.split("# What was tried before")[1]
        warned = re.findall(r"(break_\d)", said) if self.reads else []
        draw = int(re.search(r"COST = ([\d.]+)", user)[1].replace(".", "")) + len(self.broke)
        left = [m for m in METHODS if m not in warned]
        method = left[(draw * 7 + len(said) * 3) % len(left)]
        if method.startswith("break"):
            self.broke.append(method)
        cost = toy.cost_of(user) * 0.99 if method.startswith("gain") else 1
        extra = "BROKEN = 1" if method.startswith("break") else "pass"
        source = planted_fsm.kernel(round(cost, 4), extra, [method])
        return f"Method: {method}\nChange: {method} it.\n```python\n{source}```"

    @property
    def repeated(self):
        return len(self.broke) - len(set(self.broke))


def optimised(folder, reads, **options):
    engineer = Engineer(reads)
    with ScriptedServer(engineer) as server:
        model = {"url": server.url, "model": "m", "concurrency": 1}
        manage(folder, model_config=model, max_rounds=12, max_refine_attempts=0, strategy="greedy",
               num_workers=1, strategy_config={"max_no_improvement": 99}, **options)  # fmt: skip
    return engineer


@pytest.mark.slow
def test_who_reads_the_lessons_repeats_no_failure_within_a_run_and_in_the_next(tmp_path):
    blind = optimised(tmp_path / "blind", reads=False)
    reading = optimised(tmp_path / "reading", reads=True)
    assert reading.broke and reading.repeated == 0 < blind.repeated
    after = optimised(tmp_path / "after", reads=True, findings=tmp_path / "reading" / "run")
    assert not set(reading.broke) & set(after.broke)


def test_planners_of_other_strategies_are_offered_what_workers_found(tmp_path):
    manage(tmp_path / "first", max_rounds=2)
    rows = read_findings(tmp_path / "first" / "run")
    assert any(row.attempt.error_message for row in rows) and all(row.method for row in rows)
    with ScriptedServer(respond) as server:
        drive_toy(tmp_path / "next", server.url, Knowledge(earlier=tuple(rows)))
        asked = [r["messages"][0]["content"] for r in server.requests]
    planners = [text for text in asked if "performance engineer" in text]
    assert planners and all("# Attempts on this kernel" in text for text in planners)
    assert any("break on" in text for text in planners)


def drive_toy(folder, url, known):
    settings = drive.SETTINGS._replace(iterations=1)
    return asyncio.run(drive.run_toy(folder, url, settings=settings, known=known))


def test_every_strategy_leaves_findings(tmp_path):
    asyncio.run(drive.run_toy(tmp_path, settings=drive.SETTINGS._replace(iterations=1)))
    rows = read_findings(tmp_path)
    assert {row.method for row in rows} == {"divide"} and all(row.reflexion for row in rows)
    assert all(row.attempt.is_improvement and row.problem == "toy" for row in rows)


def test_findings_that_are_not_there_or_damaged_are_one_sentence(tmp_path):
    with pytest.raises(ConfigError, match=r"there is no findings\.json in"):
        read_findings(tmp_path)
    (tmp_path / "findings.json").write_text('[{"problem": 1}]')
    with pytest.raises(ConfigError, match="does not hold findings"):
        read_findings(tmp_path)


def test_older_warnings_stay_in_the_prompt(tmp_path):
    manage(tmp_path, max_rounds=3)
    rows = read_findings(tmp_path / "run")
    text = lessons_text(rows)
    assert text.count("round ") == 5
    avoided = {pattern for row in rows for pattern in row.reflexion.avoid_patterns}
    assert len(avoided) > 2 and all(pattern in text for pattern in avoided)
    assert lessons_text([]) == "Nothing yet."
