#!/usr/bin/env bash
# Continue after the finished iteration INIT_EXP_DATE until log.txt holds 1 + ITERS iterations.
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
NEXT=$EXP_BASE_DIR/next_exp_date.txt

new_exp_date() { # minutes in Pacific time, with a number behind when the minute is taken
  local date number=2 name
  date=$EXP_DATE_PREFIX-$(TZ=America/Los_Angeles date +%m-%d-%H-%M)
  name=$date
  while [ -e "$EXP_BASE_DIR/$name" ]; do
    name=$date-$number
    number=$((number + 1))
  done
  echo "$name"
}

LAST_EXP_DATE=$INIT_EXP_DATE
while [ "$(wc -l < "$EXP_BASE_DIR/log.txt")" -le "$ITERS" ]; do
  if [ ! -s "$NEXT" ]; then # an interrupted iteration keeps its folder, and what was paid for
    new_exp_date > "$NEXT"
  fi
  EXP_DATE=$(cat "$NEXT")
  mkdir -p "$EXP_BASE_DIR/$EXP_DATE"
  "$HERE/run_init.sh" "$EXP_DATE" "$LAST_EXP_DATE" "$EXP_BASE_DIR" "$PROJECT_NAME" "$ORG_NAME"
  "$HERE/run_accum_rewrites.sh" "$EXP_DATE" "$EXP_BASE_DIR" "$NC_ID" "$MAX_THRESHOLD" \
    "$MIN_THRESHOLD" "$TOPK" "$TOPK_CANDIDATES" "$PROJECT_NAME" "$REL_TOL" "$ORG_NAME"
  "$HERE/run_body.sh" "$EXP_DATE" "$EXP_BASE_DIR" \
    "$EXP_BASE_DIR/$LAST_EXP_DATE/rewrites/aggregated_rewrites_list.json" "$NC_ID" "$BREADTH" \
    "$NUM_SAMPLES" "$EXP_N" "$PROJECT_NAME" "$REL_TOL" "$ORG_NAME"
  echo "$EXP_DATE" >> "$EXP_BASE_DIR/log.txt"
  if ! grep -q '"plan_[0-9]' "$EXP_BASE_DIR/$EXP_DATE/executor_results.json"; then
    echo "$(basename "$EXP_BASE_DIR"): nobody had a plan for any kernel; the loop ends" >&2
    rm "$NEXT"
    break
  fi
  rm "$NEXT"
  LAST_EXP_DATE=$EXP_DATE
done
