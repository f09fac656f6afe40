#!/usr/bin/env bash
# What a change of job files would do to a night: both planned at one moment, their difference as Markdown.
#
#   plan-change.sh BEFORE AFTER FOLDER [OPTION...]
#
# BEFORE and AFTER hold the job files and limits.yaml, as they are and as they would be; OPTIONs go to both plans.
# FOLDER receives before.json, after.json and comment.md. Prints how many dollars more the night would cost. Plans are
# trials: nobody's night, and nothing is rented. A job that cannot be placed (exit code 3) is named in the comment.
set -euo pipefail

before=$1
after=$2
folder=$3
shift 3
now=$(date -u +%Y-%m-%dT%H:%M:%SZ)

plan() { # JOBS FILE
  local status=0
  stepfare plan "$1" --limits "$1/limits.yaml" --now "$now" --out "$2" "${@:3}" > /dev/null || status=$?
  test "$status" -eq 0 -o "$status" -eq 3 || exit "$status"
}

mkdir -p "$folder"
plan "$before" "$folder/before.json" "$@"
plan "$after" "$folder/after.json" "$@"
stepfare plan diff "$folder/before.json" "$folder/after.json" -o markdown > "$folder/comment.md"
stepfare plan diff "$folder/before.json" "$folder/after.json" -o json |
  python3 -c 'import json, sys; d = json.load(sys.stdin); print(round(float(d["cost_after_usd"]) - float(d["cost_before_usd"]), 2))'
