#!/usr/bin/env bash
# Start every loop of a run: create_all_sessions.sh EXP_DATE_BASE [AT_A_TIME [run|resume]]
set -euo pipefail
cd "$(dirname "$0")/../checkpoints/$1"
AT_A_TIME=${2:-$(nproc)}
KIND=${3:-run}
ls "${KIND}"_single_loop_*.sh > /dev/null || { echo "no ${KIND}_single_loop_*.sh in $PWD" >&2; exit 1; }
# A session of its own, so that kill_all_sessions.sh can end it with all that it started.
setsid nohup bash -c 'printf "%s\n" "$1"_single_loop_*.sh |
  xargs -P "$2" -I SCRIPT bash -c "./SCRIPT >> SCRIPT.log 2>&1 || echo SCRIPT failed >&2"' \
  sessions "$KIND" "$AT_A_TIME" > sessions.log 2>&1 &
echo $! > sessions.pid
echo "started in $PWD, $AT_A_TIME at a time; see *.log"
