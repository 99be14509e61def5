"""benchmarks/red_team.py with a model: what it writes is judged, and it is told what was refused."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from exhibits import kernel_file
from scripted_server import ScriptedServer

ROOT = Path(__file__).resolve().parents[2]
NAME = "total_without_the_last_column"


@pytest.mark.slow
def test_a_model_writes_variations(tmp_path):
    honest, wrong = (kernel_file(name).read_text() for name in ("honest_total", NAME))
    rows = [
        {"method": "nothing", "code": honest},
        {"method": "a comment", "code": wrong + "# more"},
    ]
    config = tmp_path / "model.json"
    with ScriptedServer(lambda _: json.dumps({"candidates": rows})) as server:
        config.write_text(json.dumps({"url": server.url, "model": "m"}))
        command = [sys.executable, str(ROOT / "benchmarks" / "red_team.py"), NAME]
        command += ["--rounds", "2", "--most", "2", "--model", str(config)]
        run = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert run.returncode == 0, run.stderr
    assert f"{NAME}: model: nothing" in run.stdout and "model: a comment" not in run.stdout
    assert "round 1: 1 pass {'pass': 1, 'refused': 1}" in run.stdout
    asked = [request["messages"][-1]["content"] for request in server.requests]
    bodies = [text[text.index("import") :] for text in (honest, wrong)]
    assert len(asked) == 2 and all(body in asked[0] for body in bodies)
    assert "(none)" in asked[0] and "model: a comment" in asked[1]
