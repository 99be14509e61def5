#!/usr/bin/env bash
# What all iterations share: the planner's prompt with its experiences, plans, samples.
set -euo pipefail
export ACCELOPT_LOOP_PROCESS=${ACCELOPT_LOOP_PROCESS:-$$} # its end is theirs
EXP_DATE=$1
EXP_BASE_DIR=$2
NC_ID=$3
BREADTH=$4
NUM_SAMPLES=$5
REL_TOL=$6

EXP_DIR=$EXP_BASE_DIR/$EXP_DATE
PROMPTS=${ACCELOPT_PROMPTS:-$ACCELOPT_BASE_DIR/prompts}
read -r -a BACKEND <<< "${ACCELOPT_BACKEND_OPTIONS:-}" # for templates/flb
CONFIGS=$EXP_BASE_DIR/configs

"${PYTHON:-python}" "$ACCELOPT_BASE_DIR/prompts/planner_prompts/construct_base_prompt.py" \
  --original_base_prompt_path "$PROMPTS/planner_prompts/base_prompt.txt" \
  --summarizer_output_list_path "$EXP_DIR/rewrites/aggregated_rewrites_list.json" \
  --new_base_prompt_path "$EXP_DIR/planner_prompts/base_prompt.txt"

"${PYTHON:-python}" "$ACCELOPT_BASE_DIR/scripts/planner.py" "${BACKEND[@]}" \
  --output_path "$EXP_DIR/planner_results.json" \
  --breadth "$BREADTH" \
  --exp_dir "$EXP_DIR" \
  --base_prompt_path "$EXP_DIR/planner_prompts/base_prompt.txt" \
  --user_template_path "$PROMPTS/planner_prompts/planner_prompt_template.txt" \
  --profile_result_path "$EXP_DIR/candidates/profile_results.csv" \
  --model_config_path "$CONFIGS/planner_config.json" \
  --displayed_profiles_path "$PROMPTS/planner_prompts/displayed_profiles.json"

"${PYTHON:-python}" "$ACCELOPT_BASE_DIR/scripts/executor.py" "${BACKEND[@]}" \
  --num_samples "$NUM_SAMPLES" \
  --problems_path "$EXP_DIR/candidates/profile_results.csv" \
  --extractor_output_path "$EXP_DIR/planner_results.json" \
  --exp_dir "$EXP_DIR" \
  --base_prompt_path "$PROMPTS/executor_prompts/base_prompt.txt" \
  --user_template_path "$PROMPTS/executor_prompts/user_prompt_template.txt" \
  --save_fields_path "$PROMPTS/profile_list.json" \
  --model_config_path "$CONFIGS/executor_config.json" \
  --nc_id "$NC_ID" \
  --output_path "$EXP_DIR/executor_results.json" \
  --exp_date "$EXP_DATE" \
  --rel_tol "$REL_TOL"
