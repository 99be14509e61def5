"""Benchmark folders of ours and of others."""

import json
from pathlib import Path

import pytest

from accelopt.errors import ConfigError
from accelopt.evaluation import Case
from accelopt.kernels.nki import benchmark

ROOT = Path(__file__).resolve().parents[3]


def folder(path: Path, summary: object) -> Path:
    (path / "reference").mkdir()
    (path / "kernels").mkdir()
    (path / "reference" / "r.py").write_text("")
    (path / "kernels" / "k.py").write_text("")
    (path / "summary.json").write_text(json.dumps(summary))
    return path


def problem(**changes) -> dict:
    case = {
        "values": {"N": 2, "M": 1},
        "impls": [{"task": "./reference/r.py", "kernel": "./kernels/k.py"}],
    }
    return {"seed": "./seeds/s.yaml", "cases": {"2": {**case, **changes}}}


def test_names():
    values = {"M": 4096, "N": 12288, "K": 5120}
    assert benchmark.get_case_name("matmul", values) == "matmul_K5120_M4096_N12288"
    case = Case(problem="matmul", case_id="3", values=values, task="", kernel="")
    assert benchmark.init_service_name(case) == "matmul_K5120_M4096_N12288_ID0"


def test_tolerances():
    assert benchmark.relative_tolerance("mamba") == 3e-5
    assert benchmark.relative_tolerance("matmul") == 2e-5


@pytest.mark.parametrize("start", [ROOT, ROOT / "NKIBench", ROOT / "NKIBench" / "summary.json"])
def test_our_own_benchmark_is_whole(start):
    found = benchmark.read_benchmark(start)
    assert found.broken == ()
    assert len({case.problem for case in found.cases}) == 14
    assert all(Path(case.task).is_file() and Path(case.kernel).is_file() for case in found.cases)


def test_a_foreign_folder_with_broken_entries(tmp_path):
    path = folder(
        tmp_path,
        {
            "good": problem(),
            "no_cases": {"seed": ""},
            "not_an_object": 7,
            "no_impls": problem(impls=[]),
            "missing_file": problem(impls=[{"task": "./reference/r.py", "kernel": "gone.py"}]),
            "no_task": problem(impls=[{"kernel": "./kernels/k.py"}]),
            "bad_values": problem(values={"M": "many"}),
            "also_good": problem(),
        },
    )
    found = benchmark.read_benchmark(path)
    assert [case.problem for case in found.cases] == ["good", "also_good"]
    assert found.cases[0].case_name == "good_M1_N2"
    assert Path(found.cases[0].kernel).is_absolute()
    named = {sentence.split(":")[0].split(",")[0] for sentence in found.broken}
    broken = {"no_cases", "not_an_object", "no_impls", "missing_file", "no_task", "bad_values"}
    assert named == broken


def test_no_benchmark_at_all(tmp_path):
    with pytest.raises(ConfigError, match="no NKIBench"):
        benchmark.read_benchmark(tmp_path)
    (tmp_path / "summary.json").write_text("[]")
    with pytest.raises(ConfigError, match="not a JSON object"):
        benchmark.read_benchmark(tmp_path)
    (tmp_path / "summary.json").write_text("{")
    with pytest.raises(ConfigError, match="is not JSON"):
        benchmark.read_benchmark(tmp_path)
