#!/usr/bin/env bash
# Tonight's plan from a folder of jobs: written beside the earlier ones, its differences from the last one printed.
#
#   nightly-plan.sh JOBS PLANS [CLOUDS]
#
# JOBS holds the job files and limits.yaml; PLANS receives plan-<UTC time>.json. Nothing is rented. With a clouds file
# prices are fetched first; a cloud that does not answer (exit code 5 or 7) keeps its older prices and stops nothing.
# Exits as `stepfare plan` does: 3 means that a job could not be placed, and the plan is there all the same.
set -euo pipefail

jobs=$1
plans=$2
now=$(date -u +%Y-%m-%dT%H:%M:%SZ)
plan="$plans/plan-${now//:/}.json"

mkdir -p "$plans"
if [[ -n ${3:-} ]]; then
  stepfare prices refresh --clouds "$3" || echo "prices refresh ended with $?; older prices serve" >&2
fi
last=$(find "$plans" -name 'plan-*.json' | sort | tail -n 1)

status=0
stepfare plan "$jobs" --limits "$jobs/limits.yaml" --now "$now" --out "$plan" || status=$?
if [[ $status -ne 0 && $status -ne 3 ]]; then
  exit "$status"
fi
if [[ -n $last ]]; then
  stepfare plan diff "$last" "$plan"
fi
exit "$status"
