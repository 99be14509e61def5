#!/usr/bin/env bash
# The whole shell loop with named options: collect, iterate on each problem, report.
# Interrupted, the same command continues.
set -euo pipefail
export ACCELOPT_LOOP_PROCESS=${ACCELOPT_LOOP_PROCESS:-$$} # its end is theirs
HERE=$(cd "$(dirname "$0")" && pwd)
export ACCELOPT_BASE_DIR=${ACCELOPT_BASE_DIR:-$(cd "$HERE/../.." && pwd)}

usage() {
  cat << TEXT
usage: loop.sh [OPTIONS]
  --problems NAMES        with commas between, or all    (silu; rmsnorm_h4096 of --traces)
  --out FOLDER            where everything goes          (runs/loop)
  --iterations T          rounds of a problem            (2)
  --beam B                kernels kept from round to round (2)
  --plans N               plans for each kernel kept     (2)
  --samples K             implementations of each plan   (1)
  --model-config FILE     by default the rules, no model
  --target NAME           trn2, trn1, trn3; of solutions on a GPU its name, such as h200 (trn2; trn1 of --summary)
  --core NUMBER           NeuronCore of a Trainium host  (0)
  --summary PATH          another summary.json or folder (NKIBench/nki; NKIBench of trn1)
  --traces FOLDER         a FlashInfer-Trace folder: its Triton solutions, on a GPU
TEXT
}

PROBLEMS="" OUT=runs/loop ITERATIONS=2 BEAM=2 PLANS=2 SAMPLES=1 TARGET="" CORE=0 TRACES=""
MODEL=$HERE/model_config.json SUMMARY=""
while [ $# -gt 0 ]; do
  case $1 in
    -h | --help) usage; exit ;;
    --*) [ $# -gt 1 ] || { echo "error: $1 needs a value" >&2; exit 1; } ;;
    *) echo "error: $1 is no option of loop.sh" >&2; usage >&2; exit 1 ;;
  esac
  case $1 in
    --problems) PROBLEMS=$2 ;;
    --out) OUT=$2 ;;
    --iterations) ITERATIONS=$2 ;;
    --beam) BEAM=$2 ;;
    --plans) PLANS=$2 ;;
    --samples) SAMPLES=$2 ;;
    --model-config) MODEL=$2 ;;
    --target) TARGET=$2 ;;
    --core) CORE=$2 ;;
    --summary) SUMMARY=$2 ;;
    --traces) TRACES=$2 ;;
    *) echo "error: $1 is no option of loop.sh" >&2; usage >&2; exit 1 ;;
  esac
  shift 2
done

# Without an activated environment: the one that `make install` made.
if [ -z "${PYTHON:-}" ]; then
  PYTHON=python3
  if [ -x "$ACCELOPT_BASE_DIR/.venv/bin/python" ]; then PYTHON=$ACCELOPT_BASE_DIR/.venv/bin/python; fi
fi
export PYTHON

collect() { # problems of NKIBench, with their baselines profiled
  "$PYTHON" "$ACCELOPT_BASE_DIR/scripts/collect_candidates.py" --summary_path "$SUMMARY" \
    --problems "${PROBLEMS:-silu}" --target "$TARGET" --mode construct --nc_id "$CORE" \
    --output_candidates_path "$OUT/candidates.csv" --output_profile_path "$OUT/profile_results.csv" \
    --save_fields_path "$ACCELOPT_BASE_DIR/prompts/profile_list.json"
}

collect_solutions() { # the same for solutions of a trace folder
  local experiment=$ACCELOPT_BASE_DIR/experiments/flb_optimize
  [ -d "$experiment" ] || { echo "error: --traces needs a checkout; there is no $experiment" >&2; exit 1; }
  "$PYTHON" "$experiment/select_traces.py" --trace_folder "$TRACES" \
    --problems "${PROBLEMS:-rmsnorm_h4096}" --output "$OUT/candidates.jsonl"
  "$PYTHON" "$experiment/create_files.py" --trace_folder "$TRACES" \
    --selected "$OUT/candidates.jsonl" --output "$OUT"
  "$PYTHON" "$experiment/profile_baselines.py" --selected "$OUT/candidates.csv" \
    --traceset_root "$TRACES" --output "$OUT"
}

mkdir -p "$OUT"
OUT=$(cd "$OUT" && pwd)
COLLECT=collect
if [ -n "$TRACES" ]; then
  COLLECT=collect_solutions
  TRACES=$(cd "$TRACES" && pwd)
  export ACCELOPT_PROMPTS=$ACCELOPT_BASE_DIR/prompts/flb
  export ACCELOPT_BACKEND_OPTIONS="--backend triton --target ${TARGET:-h200} --traceset_root $TRACES"
else
  TARGET=${TARGET:-$([ -n "$SUMMARY" ] && echo trn1 || echo trn2)}
  SUMMARY=${SUMMARY:-$ACCELOPT_BASE_DIR/NKIBench/$([ "$TARGET" = trn1 ] || echo nki)}
  export ACCELOPT_BACKEND_OPTIONS="--target $TARGET"
fi
[ -s "$OUT/profile_results.csv" ] || $COLLECT
"$PYTHON" "$ACCELOPT_BASE_DIR/scripts/collect_results.py" --prepare "$MODEL" --loops_path "$OUT"

for TOLERANCE in "$OUT"/*/rel_tol.txt; do
  FOLDER=$(dirname "$TOLERANCE")
  "$HERE/run_single_loop.sh" "$FOLDER" first "round" "$CORE" local "$(cat "$TOLERANCE")" local \
    "$((ITERATIONS - 1))" "$PLANS" "$BEAM" "$SAMPLES" 1.04 1.15 8 16 \
    || echo "$(basename "$FOLDER"): the loop ended early; see above" >&2
done
"$PYTHON" "$ACCELOPT_BASE_DIR/scripts/collect_results.py" --loops_path "$OUT"
