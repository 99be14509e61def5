#!/usr/bin/env bash
# Collect and profile the starting kernels: construct_baseline.sh NC_ID
set -euo pipefail
cd "$(dirname "$0")"
export ACCELOPT_BASE_DIR=${ACCELOPT_BASE_DIR:-$(cd ../.. && pwd)}
"${PYTHON:-python}" "$ACCELOPT_BASE_DIR/scripts/collect_candidates.py" \
  --output_candidates_path candidates.csv \
  --output_profile_path profile_results.csv \
  --save_fields_path "$ACCELOPT_BASE_DIR/prompts/profile_list.json" \
  --nc_id "${1:-0}" --mode construct
