"""`accelopt doctor`: each fault planted gives its message; `accelopt tune`: what its report says."""

import json

import pytest
from scripted_server import ScriptedFault, ScriptedServer

from accelopt.cli import doctor
from accelopt.cli.doctor import KERNEL, REFERENCE, Setup, examine
from accelopt.cli.tune import report
from accelopt.errors import ConfigError
from accelopt.search.knob_experts import EXPERTS, Expert


@pytest.fixture
def setup(tmp_path):
    (tmp_path / "kernel.py").write_text(KERNEL)
    (tmp_path / "reference.py").write_text(REFERENCE)
    return Setup(tmp_path / "kernel.py", tmp_path / "reference.py", None, "trn1")


def with_model(setup, **config):
    path = setup.kernel.with_name("model.json")
    path.write_text(json.dumps({"model": "m", "attempts": 1, **config}))
    return setup._replace(model_config=path)


def test_what_is_well_is_said_in_a_line(setup, capsys):
    assert all(passed for name, passed in examine(setup) if name != "loop")
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 9 and all(" ok " in line for line in lines[:8])
    assert "times as fast" in lines[8]


def test_a_missing_key(setup):
    asked = with_model(setup, url="http://127.0.0.1:9", api_key_env="NO_SUCH_KEY_HERE")
    with pytest.raises(ConfigError, match="NO_SUCH_KEY_HERE, which is not set"):
        doctor.environment(asked)


def test_a_missing_kernel_module(setup):
    setup.kernel.unlink()
    with pytest.raises(ConfigError, match=r"kernel\.py is not a file"):
        doctor.files(setup)


def test_a_model_that_answers_prose_other_values_or_json(setup):
    for answer, said in (("Sure, 128!", "prose where JSON"), ('{"block_m": 1}', "answered")):
        with (
            ScriptedServer(lambda _, answer=answer: answer) as server,
            pytest.raises(ConfigError, match=said),
        ):
            doctor.model(with_model(setup, url=server.url))
    with ScriptedServer(lambda _: 'Here: {"block_m": 128, "num_warps": 4}.') as server:
        assert "answers with JSON" in doctor.model(with_model(setup, url=server.url))


def test_a_model_that_hangs(setup):
    with (
        ScriptedServer(lambda _: "", [ScriptedFault("hang")] * 9) as server,
        pytest.raises(ConfigError, match="the model does not answer"),
    ):
        doctor.model(with_model(setup, url=server.url, timeout=1.0))


def test_nothing_validates(setup, monkeypatch):
    wild = Expert("wild", "Anything.", lambda space, history, chance: {"block_m": 7})
    monkeypatch.setitem(EXPERTS, "wild", wild)
    with pytest.raises(ConfigError, match="nothing validates: num_warps is missing"):
        doctor.validation(setup)


def test_a_wrong_result_and_a_kernel_out_of_resources(setup):
    setup.kernel.write_text(KERNEL.replace("(tile, 2.0)", "(tile, 2.5)"))
    with pytest.raises(ConfigError, match="computes a wrong result"):
        doctor.execution(setup)
    setup.kernel.write_text(KERNEL.replace("nl.affine_range(4):", "nl.affine_range(4):\n        "
                              "big = nl.ndarray((nl.par_dim(256), 1 << 20), nl.float32)"))  # fmt: skip
    with pytest.raises(ConfigError, match="cannot be built or run"):
        doctor.execution(setup)


def state(history, **more):
    knobs = [{"name": "n", "type": "int", "allowed": [1, 2, 4], "default": 2}]
    entries = [
        {"cfg": {"n": n}, "median_ms": ms, "correct": ms is not None, "reason": reason}
        for n, ms, reason in history
    ]
    found = {"history": entries, "knobs": knobs, "iteration": 3, "converged": "", "ended": "ended"}
    return {**found, **more}


def test_stagnation_and_what_a_tuning_found():
    said = "\n".join(report(state([(1, 4.0, ""), (2, 3.0, ""), (4, None, "too large")]), 6.0))
    assert "2 correct, 1 refused" in said and "1 times: too large" in said
    assert "Best: Set n = 2. 3 ms" in said and "2.000 times as fast as the kernel given" in said
    assert "1.333 times as the first tried" in said and "1.000 times as the defaults" in said
    stuck = report(state([(1, 4.0, "")], converged="no gain of 2% for 1 iterations"), 6.0)
    assert "no gain of 2% for 1 iterations." in stuck[0]
    assert report(state([(4, None, "no")]), 6.0)[-1].startswith("No configuration is correct")
