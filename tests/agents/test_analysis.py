"""Functions about a kernel: valid JSON of bounded size, whatever is asked and whatever is missing."""

import asyncio
import gzip
import json
from pathlib import Path

import pytest

from accelopt.agents.analysis_tools import FUNCTIONS, LONGEST, fitted, tools_for
from accelopt.kernels.gpu.compiler_output import CompilerOutput
from accelopt.kernels.gpu.profiling.metrics import Metrics

CORPUS = Path(__file__).resolve().parents[1] / "ptx" / "corpus"
QUESTIONS = (
    "", "{}", "prose", "[1]", "null", '{"mode": "overview"}', '{"mode": "stage_detail", "stage_id": 0}',
    '{"mode": "stage_detail"}', '{"mode": "stage_detail", "stage_id": 10000}', '{"mode": "summary"}',
    '{"mode": "region_detail", "region_id": 1, "max_insts": 100000}', '{"mode": "nothing"}',
    '{"mode": "region_detail", "region_id": "1"}', '{"mode": "get_values", "names": ["dram_read_bytes", "dram"]}',
    '{"mode": "get_values", "names": 3}', '{"mode": "search_names", "query": "dram"}',
    '{"start_line": 1, "end_line": 100000}', '{"start_line": 100000}', '{"start_line": true}', '{"unknown": 1}',
    '{"mode": "overview", "max_hot_regions": 100000, "max_hot_stages": 100000}', "[" * 50_000,
)  # fmt: skip
METRICS = Metrics(
    kernel_name="k",
    sections={
        "memory_metrics": {"dram_read_bytes": 8e6, "dram_write_bytes": 4e6},
        "compute_metrics": {"ffma": 1e6},
    },
    raw={"dram__bytes_read.sum": 8e6},
)


def ask(output, name, arguments):
    tools = {tool.name: tool for tool in tools_for(output)}
    said = asyncio.run(tools[name].call(arguments))
    assert len(said) <= LONGEST
    found = json.loads(said)
    assert isinstance(found, dict) and found
    return found


@pytest.fixture(scope="module", params=["matmul_sm90_w4_s2.ptx.gz", "attention_sm100_w4_s2.ptx.gz"])
def ptx(request):
    return gzip.decompress((CORPUS / request.param).read_bytes()).decode()


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_answer_is_json_of_bounded_size(ptx, name):
    output = CompilerOutput(ptx, METRICS)
    found = [ask(output, name, question) for question in QUESTIONS]
    assert any("missing" not in one for one in found) and any("missing" in one for one in found)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_what_is_absent_is_one_sentence(name):
    output = CompilerOutput(no_ptx="no PTX: no compiler is here", no_metrics="no counters: no ncu")
    assert ask(output, name, '{"start_line": 1}' if "source" in name else "{}")[
        "missing"
    ].startswith("no ")


def test_the_answers_are_those_of_the_material(ptx):
    output = CompilerOutput(ptx, METRICS)
    counts = ask(output, "region_dag_inspect", "{}")["metadata"]["counts"]
    assert counts["num_regions"] > 0
    summary = ask(output, "ncu_metrics_inspect", "{}")
    assert summary["arithmetic_intensity"] == pytest.approx(2e6 / 12e6)
    values = ask(
        output, "ncu_metrics_inspect", '{"mode": "get_values", "names": ["dram_read_byte"]}'
    )
    assert values["values"] == {} and "dram_read_bytes" in values["not_read"]["dram_read_byte"]
    lines = ask(output, "get_ptx_by_source", '{"start_line": 1, "end_line": 9999, "max_insts": 3}')
    assert len(lines["instructions"]) == 3 <= lines["all"]


def test_what_is_too_long_is_shortened_where_it_is_longest():
    long = {"a": list(range(5000)), "b": "x" * 50, "c": {"d": ["y" * 9000]}}
    said = json.loads(fitted(long))
    assert said["shortened"] and said["b"] == "x" * 50 and len(json.dumps(said)) <= LONGEST
    assert json.loads(fitted({str(n): n for n in range(5000)}))["missing"]
