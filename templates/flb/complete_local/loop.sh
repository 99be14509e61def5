#!/usr/bin/env bash
# The whole shell loop for Triton solutions on a GPU: the options of templates/complete_local/loop.sh,
# with the starter set where no --traces names another FlashInfer-Trace folder.
set -euo pipefail
ROOT=$(cd "$(dirname "$0")/../../.." && pwd)
TRACES=${FLASHINFER_TRACE:-$ROOT/experiments/flb_optimize/starter_trace}
exec "$ROOT/templates/complete_local/loop.sh" --traces "$TRACES" "$@"
