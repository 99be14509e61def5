"""Which workload and which solution a run starts from."""

from flb_traces import trace, write_traces
from trace_selection import choose, most_common_hardware

from accelopt.kernels.gpu.bench.files.tracefiles import TraceFolder, write_json


def folder_with(tmp_path, starter, *traces):
    definition = starter.definitions["rmsnorm_h4096"].model_copy(update={"name": "norm"})
    write_json(definition, tmp_path / "definitions" / "op" / "norm.json")
    plain = starter.solutions["plain_rmsnorm_h4096"]
    for name in ("fast", "slow", "cuda"):
        solution = plain.model_copy(update={"name": name, "definition": "norm"})
        if name == "cuda":
            spec = solution.spec.model_copy(update={"language": "cuda"})
            solution = solution.model_copy(update={"spec": spec})
        write_json(solution, tmp_path / "solutions" / "a" / "op" / "norm" / f"{name}.json")
    return TraceFolder(write_traces(tmp_path, *traces))


def test_first_workload_beyond_the_bound(tmp_path, starter):
    folder = folder_with(
        tmp_path, starter,
        trace("norm", "slow", 5.0, uuid="a" * 9),
        trace("norm", "slow", 12.0, uuid="b" * 9),
        trace("norm", "slow", 40.0, uuid="c" * 9),
    )  # fmt: skip
    [choice] = choose(folder)
    assert choice.workload.workload.uuid == "b" * 9
    [choice] = choose(folder, bound_ms=100.0)
    assert choice.workload.workload.uuid == "c" * 9


def test_the_best_is_by_latency_passed_triton_and_on_one_hardware(tmp_path, starter):
    folder = folder_with(
        tmp_path, starter,
        trace("norm", "slow", 3.0, reference=90.0),
        trace("norm", "fast", 2.0, reference=0.0),
        trace("norm", "cuda", 0.5),
        trace("norm", "slow", 0.1, hardware="NVIDIA B200"),
        trace("norm", "fast", 0.0, status="TIMEOUT"),
    )  # fmt: skip
    assert most_common_hardware(folder) == "NVIDIA H200"
    [choice] = choose(folder)
    assert choice.solution.name == "fast"
    [choice] = choose(folder, hardware="NVIDIA B200")
    assert choice.solution.name == "slow"


def test_a_folder_without_traces_can_be_started_from(starter, tmp_path):
    definition = starter.definitions["gemm_n4096_k4096"]
    write_json(definition, tmp_path / "definitions" / "gemm" / "g.json")
    write_json(starter.solutions["plain_gemm_n4096_k4096"], tmp_path / "solutions" / "g.json")
    lines = [t.model_dump_json() for t in starter.workloads[definition.name]]
    (tmp_path / "workloads").mkdir()
    (tmp_path / "workloads" / "g.jsonl").write_text("\n".join(lines))
    [choice] = choose(TraceFolder(tmp_path))
    assert choice.trace is None
    assert choice.workload.workload.axes == {"M": 8192}
