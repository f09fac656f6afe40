#!/bin/sh
# stop.sh: ends what start.sh started, the whole of its group: asked first, forced after 30 seconds. Exit 0 when nothing
# runs, 1 when something goes on.
set -eu
cd "$(dirname "$0")"
here=$(pwd)

# Whether a process of the group lives; one that nobody waits for is dead.
lives() {
    ps -e -o pgid= -o stat= | awk -v group="$1" '$1 == group && $2 !~ /^Z/ { found = 1 } END { exit !found }'
}

if [ -s pid ]; then
    read -r leader boot <pid
    # Numbers are used again, by other processes and after a reboot: only ours is ended, or what is left of its group.
    running=$(ps -o args= -p "$leader" 2>/dev/null || true)
    case $running in
    *"$here/run.sh" | *defunct* | '')
        if [ "$boot" = "$(cat /proc/sys/kernel/random/boot_id 2>/dev/null || echo -)" ]; then
            kill -s TERM -- "-$leader" 2>/dev/null || true
            waited=0
            while lives "$leader" && [ "$waited" -lt 300 ]; do
                waited=$((waited + 1))
                sleep 0.1
            done
            kill -s KILL -- "-$leader" 2>/dev/null || true
            sleep 0.1
            if lives "$leader"; then
                echo "process group $leader does not end" >&2
                exit 1
            fi
        fi
        ;;
    esac
fi
rm -f pid code
# What nobody may find there: the script, and the token and secrets that it wrote beside itself. A new one is to stay.
[ "${1:-}" = start ] || rm -f script token env.json
