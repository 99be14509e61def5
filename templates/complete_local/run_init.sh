#!/usr/bin/env bash
# Open an iteration: take over the results of the last one.
set -euo pipefail
EXP_DATE=$1
LAST_EXP_DATE=$2
EXP_BASE_DIR=$3
PROJECT_NAME=$4 # kept for the callers; nothing is sent anywhere
ORG_NAME=$5

EXP_DIR=$EXP_BASE_DIR/$EXP_DATE
mkdir -p "$EXP_DIR/candidates"
cp "$EXP_BASE_DIR/$LAST_EXP_DATE/executor_results.json" \
  "$EXP_DIR/candidates/last_iteration_executor_results.json"
echo "${EXP_DATE//-/}" > "$EXP_DIR/logfire_env_name.txt"
