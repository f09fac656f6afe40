#!/bin/sh
# running.sh FOLDER: the process group of the node of FOLDER, as long as anything of it runs; otherwise nothing.
set -u
. "$(dirname "$0")/birth.sh"
[ -s "$1/pid" ] || exit 0
pid=$(cat "$1/pid")
case $pid in
*[!0-9]*) exit 0 ;;
esac
if ours "$1" "$pid" && alive "$pid"; then
    echo "$pid"
fi
