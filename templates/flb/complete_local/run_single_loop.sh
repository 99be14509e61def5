#!/usr/bin/env bash
# One Triton problem from its profiled baseline through 1 + ITERS iterations: the NKI loop's own
# scripts with another backend, other prompts and a trace folder. The same command continues.
set -euo pipefail
export ACCELOPT_LOOP_PROCESS=${ACCELOPT_LOOP_PROCESS:-$$} # its end is theirs
EXP_BASE_DIR=$1
INIT_EXP_DATE=$2
EXP_DATE_PREFIX=$3
PROJECT_NAME=$4
ORG_NAME=$5
ITERS=$6
BREADTH=$7
TRACESET_ROOT=$8
UNUSED=$9 # a place that the published callers fill
TOPK_CANDIDATES=${10}
NUM_SAMPLES=${11}
MAX_THRESHOLD=${12}
MIN_THRESHOLD=${13}
TOPK=${14}
EXP_N=${15}

HERE=$(cd "$(dirname "$0")" && pwd)
export ACCELOPT_BASE_DIR=${ACCELOPT_BASE_DIR:-$(cd "$HERE/../../.." && pwd)}
export ACCELOPT_PROMPTS=$ACCELOPT_BASE_DIR/prompts/flb
export ACCELOPT_BACKEND_OPTIONS="--backend triton --target ${TARGET:-h200} --traceset_root $TRACESET_ROOT"

# The core and the relative tolerance mean nothing here; definitions carry their own tolerances.
exec "$ACCELOPT_BASE_DIR/templates/complete_local/run_single_loop.sh" "$EXP_BASE_DIR" \
  "$INIT_EXP_DATE" "$EXP_DATE_PREFIX" 0 "$PROJECT_NAME" 0 "$ORG_NAME" "$ITERS" "$BREADTH" \
  "$TOPK_CANDIDATES" "$NUM_SAMPLES" "$MAX_THRESHOLD" "$MIN_THRESHOLD" "$TOPK" "$EXP_N"
