#!/usr/bin/env bash
# Continue every unfinished loop of a run: create_all_resume_sessions.sh EXP_DATE_BASE [AT_A_TIME]
set -euo pipefail
exec "$(dirname "$0")/create_all_sessions.sh" "$1" "${2:-$(nproc)}" resume
