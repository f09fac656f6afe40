#!/usr/bin/env bash
# Tonight's plan from a folder of jobs, near the last night's: its page and its differences beside the plan itself.
#
#   nightly-plan.sh JOBS PLANS [CLOUDS]
#
# JOBS holds the job files and limits.yaml; PLANS receives plan-<UTC time>.json and .html. Nothing is rented. With a
# clouds file prices and quotas are read first; a cloud that does not answer (exit code 5 or 7) keeps its older ones and
# stops nothing. Exits as `stepfare plan` does: 3 means that a job could not be placed, and the plan is there all the
# same. Where rules ask for an approval, somebody gives it with `stepfare plan approve PLAN`; `stepfare watch` tells
# people of it.
set -euo pipefail

jobs=$1
plans=$2
plan="$plans/plan-$(date -u +%Y-%m-%dT%H%M%SZ).json"
options=(--limits "$jobs/limits.yaml" --name night --since last --out "$plan" --html "${plan%.json}.html")

mkdir -p "$plans"
if [[ -n ${3:-} ]]; then
  stepfare prices refresh --clouds "$3" || echo "prices refresh ended with $?; older prices serve" >&2
  stepfare quotas --clouds "$3" > /dev/null || echo "quotas ended with $?; the last reading serves" >&2
  options+=(--quotas latest)
fi
last=$(find "$plans" -name 'plan-*.json' | sort | tail -n 1)
if [[ -n $last ]]; then
  options+=(--against "$last")
fi

status=0
stepfare plan "$jobs" "${options[@]}" || status=$?
if [[ $status -ne 0 && $status -ne 3 ]]; then
  exit "$status"
fi
if [[ -n $last ]]; then
  stepfare plan diff "$last" "$plan"
fi
exit "$status"
