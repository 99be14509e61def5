#!/usr/bin/env bash
# End resumed loops; the same as kill_all_sessions.sh: kill_all_resume_sessions.sh EXP_DATE_BASE
set -euo pipefail
exec "$(dirname "$0")/kill_all_sessions.sh" "$1"
