#!/usr/bin/env bash
# The second half of a later iteration: merge experiences, plan, execute.
set -euo pipefail
export ACCELOPT_LOOP_PROCESS=${ACCELOPT_LOOP_PROCESS:-$$} # its end is theirs
EXP_DATE=$1
EXP_BASE_DIR=$2
EXPERIENCE_LIST_PATH=$3
NC_ID=$4
BREADTH=$5
NUM_SAMPLES=$6
EXP_N=$7
PROJECT_NAME=$8 # kept for the callers; nothing is sent anywhere
REL_TOL=$9
ORG_NAME=${10}

EXP_DIR=$EXP_BASE_DIR/$EXP_DATE

"${PYTHON:-python}" "$ACCELOPT_BASE_DIR/scripts/construct_experience.py" \
  --original_rewrite_list_path "$EXP_DIR/rewrites/rewrites_selection_output_list.json" \
  --experience_list_path "$EXPERIENCE_LIST_PATH" \
  --output_path "$EXP_DIR/rewrites/aggregated_rewrites_list.json" \
  --n "$EXP_N"

"$(dirname "$0")/plan_and_execute.sh" "$EXP_DATE" "$EXP_BASE_DIR" "$NC_ID" "$BREADTH" \
  "$NUM_SAMPLES" "$REL_TOL"
