#!/usr/bin/env bash
# The first half of a later iteration: learn from the last results, select, profile.
set -euo pipefail
export ACCELOPT_LOOP_PROCESS=${ACCELOPT_LOOP_PROCESS:-$$} # its end is theirs
EXP_DATE=$1
EXP_BASE_DIR=$2
NC_ID=$3
MAX_THRESHOLD=$4
MIN_THRESHOLD=$5
TOPK=$6
TOPK_CANDIDATES=$7
PROJECT_NAME=$8 # kept for the callers; nothing is sent anywhere
REL_TOL=$9
ORG_NAME=${10}

EXP_DIR=$EXP_BASE_DIR/$EXP_DATE
PROMPTS=${ACCELOPT_PROMPTS:-$ACCELOPT_BASE_DIR/prompts}
read -r -a BACKEND <<< "${ACCELOPT_BACKEND_OPTIONS:-}" # for templates/flb
RESULTS=$EXP_DIR/candidates/last_iteration_executor_results.json
mkdir -p "$EXP_DIR/rewrites"

timed() { # NAME COMMAND...: run it, and keep when it began and ended
  local name=$1 started
  shift
  started=$(date -u +%Y-%m-%dT%H:%M:%S.%6NZ)
  "$@"
  echo "$started,$(date -u +%Y-%m-%dT%H:%M:%S.%6NZ)" >> "$EXP_DIR/${name}_start_end_time.txt"
}

timed rewrites_selection "${PYTHON:-python}" "$ACCELOPT_BASE_DIR/scripts/rewrites_selection.py" \
  --executor_results_path "$RESULTS" \
  --base_prompt_path "$PROMPTS/summarizer_prompts/base_prompt.txt" \
  --user_template_path "$PROMPTS/summarizer_prompts/user_prompt_template.txt" \
  --output_list_path "$EXP_DIR/rewrites/rewrites_selection_output_list.json" \
  --max_threshold "$MAX_THRESHOLD" \
  --min_threshold "$MIN_THRESHOLD" \
  --topk "$TOPK" \
  --output_plan_ids_path "$EXP_DIR/rewrites/rewrites_selection_output_plan_ids.json" \
  --output_speedups_path "$EXP_DIR/rewrites/rewrites_selection_output_speedups.json" \
  --model_config_path "$EXP_BASE_DIR/configs/summarizer_config.json"

timed select_candidates "${PYTHON:-python}" "$ACCELOPT_BASE_DIR/scripts/select_candidates.py" \
  --executor_results_path "$RESULTS" \
  --output_base_path "$EXP_DIR/candidates" \
  --topk "$TOPK_CANDIDATES"

timed profile_candidates "${PYTHON:-python}" "$ACCELOPT_BASE_DIR/scripts/sequential_profile.py" "${BACKEND[@]}" \
  --candidates_path "$EXP_DIR/candidates/candidates.csv" \
  --save_fields_path "$PROMPTS/profile_list.json" \
  --output_path "$EXP_DIR/candidates/profile_results.csv" \
  --nc_id "$NC_ID" \
  --rel_tol "$REL_TOL"
