"""Traces for tests, made by hand; and what is installed."""

import importlib.util

from accelopt.kernels.gpu.bench.files.tracefiles import Trace


def installed(*names: str) -> bool:
    return all(importlib.util.find_spec(name) is not None for name in names)


UUID = "0123456789abcdef"


def trace(
    definition, solution, latency, *, reference=10.0, status="PASSED", hardware="NVIDIA H200",
    uuid=UUID, launch_free=None, log="",
):  # fmt: skip
    evaluation = {
        "status": status,
        "environment": {"hardware": hardware, "libs": {}},
        "timestamp": "2026-01-01T00:00:00",
        "log": log,
    }
    if status == "PASSED":
        extra = {} if launch_free is None else {"launch_free_latency_ms": launch_free}
        evaluation["correctness"] = {
            "max_relative_error": 0.0, "max_absolute_error": 0.0, "extra": extra,
        }  # fmt: skip
        evaluation["performance"] = {
            "latency_ms": latency,
            "reference_latency_ms": reference,
            "speedup_factor": reference / latency,
        }
    return Trace.model_validate(
        {
            "definition": definition,
            "workload": {"axes": {"M": 4}, "inputs": {}, "uuid": uuid},
            "solution": solution,
            "evaluation": evaluation,
        }
    )


def write_traces(root, *traces):
    folder = root / "traces" / "op"
    folder.mkdir(parents=True)
    for index, item in enumerate(traces):
        (folder / f"{item.definition}_{index}.json").write_text(item.model_dump_json())
    return root
