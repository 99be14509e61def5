import json
from pathlib import Path

import pytest
from small_problem import benchmark, run


@pytest.fixture
def script():
    return run


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory):
    """The folder that collecting, planning and executing one small problem leaves."""
    out = tmp_path_factory.mktemp("pipeline") / "not" / "there" / "yet"
    prompts, model = Path("prompts"), "templates/complete_local/model_config.json"
    run(
        "collect_candidates",
        *("--summary_path", benchmark(out.parents[2] / "bench")),
        *("--output_candidates_path", out / "candidates.csv"),
        *("--output_profile_path", out / "profile_results.csv"),
        *("--save_fields_path", prompts / "profile_list.json", "--nc_id", 0),
    )
    run(
        "planner",
        *("--output_path", out / "plans.json", "--breadth", 2, "--exp_dir", out / "fresh"),
        *("--base_prompt_path", prompts / "planner_prompts" / "base_prompt.txt"),
        "--user_template_path",
        prompts / "planner_prompts" / "planner_prompt_template.txt",
        *("--profile_result_path", out / "profile_results.csv", "--model_config_path", model),
        *("--displayed_profiles_path", prompts / "planner_prompts" / "displayed_profiles.json"),
    )
    planned = json.loads((out / "plans.json").read_text())
    stale = {"service_name": "other_ID0", "reasonings": ["x"], "plans": ["x"]}
    (out / "plans_with_a_stranger.json").write_text(json.dumps([stale, *planned]))
    said = run(
        "executor",
        *("--num_samples", 2, "--nc_id", 0, "--problems_path", out / "candidates.csv"),
        *("--extractor_output_path", out / "plans_with_a_stranger.json"),
        *("--exp_dir", out / "results" / "11-21-09-00", "--exp_date", "11-21-09-00"),
        *("--base_prompt_path", prompts / "executor_prompts" / "base_prompt.txt"),
        *("--user_template_path", prompts / "executor_prompts" / "user_prompt_template.txt"),
        *("--save_fields_path", prompts / "profile_list.json", "--model_config_path", model),
        *("--output_path", out / "results" / "executor_results.json"),
    )
    (out / "executor.log").write_text(said)
    return out
