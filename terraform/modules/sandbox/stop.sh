#!/bin/sh
# stop.sh FOLDER: ends the process whose pid is in FOLDER/pid, with all of its group: SIGTERM, and SIGKILL after
# STEPFARE_GRACE_SECONDS (10). Keeps the log, removes the rest. No pid, or no such process: nothing to do.
set -u
. "$(dirname "$0")/birth.sh"
folder=$1

ended() {
    # What was announced to this machine (notice.json) is not meant for the next one of its name.
    rm -f "$folder/pid" "$folder/born" "$folder/script" "$folder/up" "$folder/refused" "$folder/notice.json"
    exit 0
}

# Before the pid is looked for: a process that is not that far yet finds that nobody wants it (node.sh).
rm -f "$folder/wanted"
[ -s "$folder/pid" ] || ended
pid=$(cat "$folder/pid")
case $pid in
*[!0-9]*)
    echo "$folder/pid holds no process id" >&2
    exit 1
    ;;
esac

ours "$folder" "$pid" || ended
kill -s TERM -- "-$pid" 2>/dev/null
tenths=$((${STEPFARE_GRACE_SECONDS:-10} * 10))
while alive "$pid"; do
    if [ "$tenths" -le 0 ]; then
        kill -s KILL -- "-$pid" 2>/dev/null
        sleep 0.1
        break
    fi
    tenths=$((tenths - 1))
    sleep 0.1
done
ended
