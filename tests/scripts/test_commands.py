"""The published commands, one after the other, on a small problem with the offline proposer."""

import csv
import json
from pathlib import Path

import pytest

PROMPTS = Path("prompts")


def rows(path):
    with path.open() as file:
        return list(csv.DictReader(file))


def test_the_five_scripts_hand_on_the_published_tables(script, pipeline):
    out = pipeline
    [row] = rows(out / "candidates.csv")
    assert list(row) == "problem values case_id task kernel case_name service_name".split()
    assert row["case_name"] == "silu_M256_N1024"
    assert row["service_name"] == "silu_M256_N1024_ID0"
    assert json.loads(row["values"]) == {"N": 1024, "M": 256}
    [profiled] = rows(out / "profile_results.csv")
    assert list(profiled) == [*row, "profile"]
    metadata = json.loads(profiled["profile"])
    assert {"latency", "min_ms", "max_ms", "rel_diffs", "hbm_read_bytes"} <= metadata.keys()

    [planned] = json.loads((out / "plans.json").read_text())
    assert list(planned) == ["service_name", "reasonings", "plans"]
    # Two were asked for; all fast kernels of it have the same stages, and of a kind one is judged.
    assert len(planned["plans"]) == len(planned["reasonings"]) == 1
    assert (out / "fresh" / "planner_start_end_time.txt").read_text().count(",") == 1

    assert "other services are left aside" in (out / "executor.log").read_text()
    output = json.loads((out / "results" / "executor_results.json").read_text())
    assert output["read_token"] == "unused" and output["exp_date"] == "11-21-09-00"
    [record] = output["executor_results"]
    assert record.pop("service_name") == "silu_M256_N1024_ID0"
    assert record.pop("case_name") == "silu_M256_N1024"
    assert set(record) == {"plan_0_0", "plan_0_1"}
    best = max(record.values(), key=lambda sample: sample.get("speedup", 0))
    published = "body spec_code baseline baseline_latency problem values kernel_metadata"
    assert {*published.split(), "baseline_metadata", "latency", "speedup"} <= best.keys()
    assert best["speedup"] == pytest.approx(best["baseline_latency"] / best["latency"])
    assert best["speedup"] > 1
    assert json.loads(best["kernel_metadata"])["latency"] == best["latency"]

    results = out / "results"
    script(
        "select_candidates",
        *("--executor_results_path", results / "executor_results.json"),
        *("--output_base_path", results),
    )
    [selected] = rows(results / "candidates.csv")
    columns = "service_name task kernel problem values plan_id case_name"
    assert list(selected) == columns.split()
    assert Path(selected["kernel"]).read_text() == best["body"]
    assert Path(selected["kernel"]).name.endswith(f"_ID0_{selected['plan_id']}_body.py")
    script(
        "sequential_profile",
        *("--candidates_path", results / "candidates.csv"),
        *("--save_fields_path", PROMPTS / "profile_list.json"),
        *("--output_path", results / "profile_results.csv"),
        *("--nc_id", 0, "--rel_tol", 2e-5),
    )
    [again] = rows(results / "profile_results.csv")
    assert list(again) == [*columns.split(), "profile"]
    assert json.loads(again["profile"])["latency"] == best["latency"]


def test_the_memory_scripts(script, pipeline, tmp_path):
    out = pipeline
    lists = tmp_path / "rewrites"
    script(
        "rewrites_selection",
        *("--executor_results_path", out / "results" / "executor_results.json"),
        *("--base_prompt_path", PROMPTS / "summarizer_prompts" / "base_prompt.txt"),
        *("--user_template_path", PROMPTS / "summarizer_prompts" / "user_prompt_template.txt"),
        *("--output_list_path", lists / "list.json"),
        *("--max_threshold", 1.0001, "--min_threshold", 1.0001, "--topk", 8),
        *("--output_plan_ids_path", lists / "ids.json"),
        *("--output_speedups_path", lists / "speedups.json"),
        *("--model_config_path", "templates/complete_local/model_config.json"),
    )
    learned = json.loads((lists / "list.json").read_text())
    assert learned
    keys = "service_name case_name id speedup_original speedup slow_kernel fast_kernel raw_response"
    assert {*keys.split(), "title", "summary"} <= learned[0].keys()
    ids = json.loads((lists / "ids.json").read_text())
    assert learned[0]["id"] in ids["silu_M256_N1024_ID0"]
    speedups = json.loads((lists / "speedups.json").read_text())
    assert learned[0]["speedup_original"] in speedups["silu_M256_N1024_ID0"]
    script(
        "construct_experience",
        *("--is_first", "--experience_list_path", PROMPTS / "empty_rewrites.json"),
        *("--output_path", lists / "first.json", "--n", 16),
    )
    assert json.loads((lists / "first.json").read_text()) == []
    script(
        "construct_experience",
        *("--original_rewrite_list_path", lists / "list.json"),
        *("--experience_list_path", lists / "first.json"),
        *("--output_path", lists / "next.json", "--n", 16),
    )
    script(
        "prompts/planner_prompts/construct_base_prompt.py",
        *("--original_base_prompt_path", PROMPTS / "planner_prompts" / "base_prompt.txt"),
        *("--summarizer_output_list_path", lists / "next.json"),
        *("--new_base_prompt_path", lists / "deep" / "base_prompt.txt"),
    )
    prompt = (lists / "deep" / "base_prompt.txt").read_text()
    assert f"{learned[0]['speedup']:.2f} times as fast" in prompt
    assert learned[0]["title"] in prompt


@pytest.mark.parametrize(
    ("content", "sentence"),
    [(None, "cannot read"), ("", "is empty"), ("service_name\nx\n", "has no column task")],
)
def test_a_broken_table_is_one_sentence(script, tmp_path, content, sentence):
    table, out = tmp_path / "candidates.csv", tmp_path / "out.csv"
    if content is not None:
        table.write_text(content)
    out.write_text("of an earlier run")
    said = script(
        "sequential_profile",
        *("--candidates_path", table, "--save_fields_path", PROMPTS / "profile_list.json"),
        *("--output_path", out, "--nc_id", 0, "--rel_tol", 2e-5),
        ok=False,
    )
    assert sentence in said and said.startswith("error: ") and said.count("\n") == 1
    assert out.read_text() == "of an earlier run"


def test_a_benchmark_without_problems_leaves_earlier_tables_alone(script, tmp_path):
    (tmp_path / "summary.json").write_text('{"silu": {}}')
    table = tmp_path / "candidates.csv"
    table.write_text("of an earlier run")
    said = script(
        "collect_candidates",
        *("--summary_path", tmp_path, "--output_candidates_path", table, "--mode", "collect"),
        *("--output_profile_path", tmp_path / "profile_results.csv"),
        ok=False,
    )
    assert "holds no problem that can be used" in said
    assert table.read_text() == "of an earlier run"


@pytest.mark.parametrize(
    ("option", "value"),
    [("--topk", "0"), ("--topk", "many")],
)
def test_a_number_that_makes_no_sense_is_refused(script, tmp_path, option, value):
    said = script(
        "select_candidates",
        *("--executor_results_path", tmp_path / "results.json"),
        *("--output_base_path", tmp_path, option, value),
        ok=False,
    )
    assert f"argument {option}: '{value}' is not a whole number of 1 or more" in said


def test_an_output_that_cannot_be_written_is_said_before_the_work(script, tmp_path):
    (tmp_path / "file").write_text("")
    for path, sentence in (
        (tmp_path, "is a folder, not a file to write"),
        (tmp_path / "file" / "deep" / "out.csv", f"{tmp_path / 'file'} is no folder"),
    ):
        said = script(
            "sequential_profile",
            *("--candidates_path", "none.csv", "--save_fields_path", "none.json"),
            *("--output_path", path, "--nc_id", 0, "--rel_tol", 2e-5),
            ok=False,
        )
        assert "argument --output_path" in said and sentence in said
