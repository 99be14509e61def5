#!/usr/bin/env bash
# One problem, from its profiled baseline through 1 + ITERS iterations. Interrupted, the same
# command continues: log.txt names the finished iterations, next_exp_date.txt the one under way.
set -euo pipefail
export ACCELOPT_LOOP_PROCESS=${ACCELOPT_LOOP_PROCESS:-$$} # its end is theirs
EXP_BASE_DIR=$1
INIT_EXP_DATE=$2
EXP_DATE_PREFIX=$3
NC_ID=$4
PROJECT_NAME=$5
REL_TOL=$6
ORG_NAME=$7
ITERS=$8
BREADTH=$9
TOPK_CANDIDATES=${10}
NUM_SAMPLES=${11}
MAX_THRESHOLD=${12}
MIN_THRESHOLD=${13}
TOPK=${14}
EXP_N=${15}

HERE=$(cd "$(dirname "$0")" && pwd)
export ACCELOPT_BASE_DIR=${ACCELOPT_BASE_DIR:-$(cd "$HERE/../.." && pwd)}
EXPERIENCE_LIST_PATH=${EXPERIENCE_LIST_PATH:-$ACCELOPT_BASE_DIR/prompts/empty_rewrites.json}

touch "$EXP_BASE_DIR/log.txt"
if [ ! -s "$EXP_BASE_DIR/log.txt" ]; then
  "$HERE/run_first.sh" "$INIT_EXP_DATE" "$EXP_BASE_DIR" "$EXPERIENCE_LIST_PATH" "$NC_ID" \
    "$BREADTH" "$NUM_SAMPLES" "$EXP_N" "$PROJECT_NAME" "$REL_TOL" "$ORG_NAME"
  echo "$INIT_EXP_DATE" >> "$EXP_BASE_DIR/log.txt"
fi

"$HERE/resume_single_loop.sh" "$EXP_BASE_DIR" "$(tail -n 1 "$EXP_BASE_DIR/log.txt")" \
  "$EXP_DATE_PREFIX" "$NC_ID" "$PROJECT_NAME" "$REL_TOL" "$ORG_NAME" "$ITERS" "$BREADTH" \
  "$TOPK_CANDIDATES" "$NUM_SAMPLES" "$MAX_THRESHOLD" "$MIN_THRESHOLD" "$TOPK" "$EXP_N"
