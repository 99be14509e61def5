"""Triton solutions leave the database as a FlashInfer-Trace folder that others read."""

from pathlib import Path

from timed_kernels import correct

from accelopt.database.connection import Database
from accelopt.database.export import export_to
from accelopt.database.journal_kernels import Replay, Start
from accelopt.database.run_rows import rows_of
from accelopt.kernels.gpu.bench.files.tracefiles import TraceFolder, write_json
from accelopt.kernels.gpu.cases import case_of
from accelopt.nodes import Node

STARTER = TraceFolder(
    Path(__file__).resolve().parents[2] / "experiments" / "flb_optimize" / "starter_trace"
)


def test_solutions_and_traces_come_back(tmp_path):
    name = "softmax_n8192"
    case = case_of(
        write_json(STARTER.definitions[name], tmp_path / "definition.json"),
        write_json(STARTER.solutions_of(name)[0], tmp_path / "solution.json"),
        write_json(STARTER.workloads[name][0], tmp_path / "workload.json"),
    )
    verdict = correct(0.05, "NVIDIA H200", False, package_latency_ms=0.06)
    source = STARTER.solutions_of(name)[0].main_source
    start = Start(
        case=case,
        language="flashinfer",  # as journals of earlier versions say
        target="NVIDIA H200",
        toolchain="triton 3.6",
        reference="its definition",
        source=source,
        evaluation=verdict,
    )
    root = Node(case, source, verdict)
    database = Database(str(tmp_path / "k.sqlite"))
    database.put(rows_of(Replay(start, {root.name: root}, {}, [], [], {}), "run"))
    assert export_to(tmp_path / "traces", database) == "1 traces"
    read = TraceFolder(tmp_path / "traces")
    [solution] = read.solutions_of(name)
    [trace] = read.traces[name]
    assert solution.main_source == source and trace.solution == solution.name and trace.passed
    assert trace.evaluation.performance.latency_ms == 0.06
    assert trace.evaluation.correctness.extra["launch_free_latency_ms"] == 0.05
    (tmp_path / "definition.json").unlink()
    said = export_to(tmp_path / "again", database)
    assert said == f"0 traces; the definitions of {case.case_name} are not here any more"
