"""Reading and writing FlashInfer-Trace folders without torch."""

import json

import pytest
from flb_traces import trace

from accelopt.errors import ConfigError
from accelopt.kernels.gpu.bench.files.tracefiles import (
    Definition,
    Solution,
    Trace,
    TraceFolder,
    read_json,
    read_workload,
    trace_stem,
    write_json,
)


def test_the_starter_set_is_whole(starter):
    assert not starter.problems
    assert len(starter.definitions) == 8
    for name, definition in starter.definitions.items():
        assert len(starter.workloads[name]) == 2
        assert [s.spec.language for s in starter.solutions_of(name)] == ["triton"]
        compile(definition.reference, name, "exec")
        for workload in starter.workloads[name]:
            for spec in (*definition.inputs.values(), *definition.outputs.values()):
                shape = definition.shape(spec, workload.workload)
                assert shape is None or all(size > 0 for size in shape)


def test_the_starter_set_follows_from_its_sources(starter):
    sources = starter.root.parent / "starter"
    for name, definition in starter.definitions.items():
        assert definition.reference == (sources / "references" / f"{name}.py").read_text()
        text = (sources / "solutions" / f"{name}.py").read_text()
        assert starter.solutions[f"plain_{name}"].main_source == text


def test_unknown_keys_survive_a_round_trip(starter, tmp_path):
    path = write_json(starter.definitions["rmsnorm_h4096"], tmp_path / "d.json")
    content = json.loads(path.read_text()) | {"tags": ["ours"]}
    path.write_text(json.dumps(content))
    again = write_json(read_json(Definition, path), tmp_path / "e.json")
    assert json.loads(again.read_text())["tags"] == ["ours"]
    assert "value" not in json.loads(again.read_text())["axes"]["batch_size"]


def test_of_two_files_with_one_name_inside_the_one_named_so_is_kept(starter, tmp_path):
    plain = starter.solutions["plain_rmsnorm_h4096"]
    folder = tmp_path / "solutions" / "rmsnorm"
    write_json(plain.with_source("old", plain.name), folder / f"deprecated_{plain.name}.json")
    write_json(plain.with_source("new", plain.name), folder / f"{plain.name}.json")
    found = TraceFolder(tmp_path)
    assert found.solutions[plain.name].main_source == "new"
    assert "this file is kept" in found.problems[0]


def test_one_bad_file_costs_nothing_else(tmp_path):
    good = trace("gemm", "s1", 1.0)
    folder = tmp_path / "traces" / "someone" / "gemm"
    folder.mkdir(parents=True)
    (folder / "gemm.jsonl").write_text(good.model_dump_json() + "\nnot json\n")
    found = TraceFolder(tmp_path)
    assert [t.solution for t in found.traces["gemm"]] == ["s1"]
    assert len(found.problems) == 1
    assert "gemm.jsonl" in found.problems[0]


def test_missing_and_broken_files_name_themselves(tmp_path):
    with pytest.raises(ConfigError, match=r"nowhere\.json"):
        read_json(Solution, tmp_path / "nowhere.json")
    broken = tmp_path / "w.json"
    broken.write_text("{}")
    with pytest.raises(ConfigError, match=r"w\.json"):
        read_workload(broken)


def test_names_as_published(starter):
    workload = starter.workloads["rmsnorm_h4096"][0]
    stem = f"rmsnorm_h4096_{workload.workload.uuid[:7]}"
    assert trace_stem(workload, "best") == f"{stem}_best"


def test_the_package_reads_what_we_write(starter):
    data = pytest.importorskip("flashinfer_bench", reason="flashinfer-bench is not installed")
    found = data.TraceSet.from_path(str(starter.root))
    assert set(found.definitions) == set(starter.definitions)
    for name, traces in starter.traces.items():
        assert [t.solution for t in found.traces[name]] == [t.solution for t in traces]
    assert isinstance(Trace.model_validate_json(traces[0].model_dump_json()), Trace)
