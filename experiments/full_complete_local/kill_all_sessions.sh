#!/usr/bin/env bash
# End the loops of a run that create_all_sessions.sh started: kill_all_sessions.sh EXP_DATE_BASE
set -euo pipefail
cd "$(dirname "$0")/../checkpoints/$1"
[ -s sessions.pid ] || { echo "no sessions were started in $PWD" >&2; exit 1; }
kill -- "-$(cat sessions.pid)" 2> /dev/null || echo "already over"
rm -f sessions.pid
