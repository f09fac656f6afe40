#!/bin/sh
# start.sh FOLDER: starts the process of one node, detached: a session of its own, output to FOLDER/log, pid in FOLDER/pid.
# Takes the script from STEPFARE_SCRIPT. Stops what an earlier start left. Exit 1 when no process came up.
set -eu
umask 077
folder=$1
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
sh "$(dirname "$0")/stop.sh" "$folder"

printf '%s\n' "$STEPFARE_SCRIPT" >"$folder/script"
chmod 700 "$folder/script"
case $STEPFARE_SCRIPT in
'#!'*) set -- "$folder/script" ;;
*) set -- sh "$folder/script" ;;
esac
export STEPFARE_NODE_FOLDER="$folder"
# What is Terraform's, and the script itself, are not the node's business.
unset STEPFARE_SCRIPT TF_CLI_CONFIG_FILE TF_IN_AUTOMATION TF_INPUT TF_DATA_DIR

here=$(cd "$(dirname "$0")" && pwd)
if command -v setsid >/dev/null 2>&1; then
    setsid sh "$here/node.sh" "$@" </dev/null >>"$folder/log" 2>&1 &
else
    # macOS has no setsid; its perl has.
    perl -MPOSIX -e 'POSIX::setsid(); exec @ARGV' sh "$here/node.sh" "$@" </dev/null >>"$folder/log" 2>&1 &
fi

waited=0
while [ ! -s "$folder/pid" ]; do
    if [ "$waited" -ge 100 ]; then
        echo "the node's process did not start within 10 seconds" >&2
        exit 1
    fi
    waited=$((waited + 1))
    sleep 0.1
done
