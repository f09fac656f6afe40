#!/bin/sh
# start.sh FOLDER: starts the process of one node, detached: a session of its own, output to FOLDER/log, pid in FOLDER/pid.
# Takes the script from STEPFARE_SCRIPT. Stops what an earlier start left. Exit 1 when no process came up, with the reason.
#
# STEPFARE_SANDBOX may name a folder (absolute) that plays the cloud. Lines of its file `stock`:
#   REGION ZONE INSTANCE_TYPE MARKET MACHINES   so many at a time (stock.sh); ZONE -: any zone, and nodes without one
#   closed PLACE UNTIL [BY]                     none in that zone or region before UNTIL (seconds since 1970; -: for good)
#   delay SECONDS [MACHINES]                    every start takes so long, or as long as the line is there; MACHINES: of
#                                               those after so many that are up in the run directory
#   sick PATTERN                                nodes of such a name come up, but never do anything
set -eu
umask 077
folder=$1
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
here=$(cd "$(dirname "$0")" && pwd)
. "$here/birth.sh"
sh "$here/stop.sh" "$folder"

printf '%s\n' "$STEPFARE_SCRIPT" >"$folder/script"
chmod 700 "$folder/script"
case $STEPFARE_SCRIPT in
'#!'*) set -- "$folder/script" ;;
*) set -- sh "$folder/script" ;;
esac

take_time() {
    up=0
    for other in "$folder"/../*/up; do
        [ ! -e "$other" ] || up=$((up + 1))
    done
    [ "$up" -ge "$2" ] || return 0
    tenths=$(awk -v seconds="$1" 'BEGIN { print int(seconds * 10 + 0.5) }')
    while [ "$tenths" -gt 0 ] &&
        awk -v s="$1" -v m="$2" '$1 == "delay" && $2 == s && $3 + 0 == m + 0 { found = 1 } END { exit !found }' "$STEPFARE_SANDBOX/stock"; do
        tenths=$((tenths - 1))
        sleep 0.1
    done
}

if [ -f "${STEPFARE_SANDBOX:-}/stock" ]; then
    while read -r what value more; do
        case $what in
        delay) take_time "$value" "${more:-0}" ;;
        sick)
            # shellcheck disable=SC2254
            case $STEPFARE_NODE in
            $value) set -- sh -c 'while :; do sleep 3600; done' ;;
            esac
            ;;
        esac
    done <"$STEPFARE_SANDBOX/stock"
fi

# Another for each start.
export STEPFARE_WANTED="$$ $(birth $$)"
echo "$STEPFARE_WANTED" >"$folder/wanted"
export STEPFARE_NODE_FOLDER="$folder"
# What is Terraform's, and the script itself, are not the node's business.
# A machine of a cloud would not have the keys that Terraform works with; a training here has no more than this.
# shellcheck disable=SC2046
for name in $(awk 'BEGIN { for (name in ENVIRON) print name }'); do
    case $name in
    PATH | HOME | USER | LOGNAME | SHELL | TMPDIR | TZ | LANG | LC_ALL) ;;
    HTTP_PROXY | HTTPS_PROXY | NO_PROXY | http_proxy | https_proxy | no_proxy | SSL_CERT_FILE | SSL_CERT_DIR) ;;
    STEPFARE_ATTEMPT | STEPFARE_RANK | STEPFARE_NODE | STEPFARE_NODE_ID | STEPFARE_STATE | STEPFARE_MACHINE) ;;
    STEPFARE_WANTED | STEPFARE_NODE_FOLDER | STEPFARE_SANDBOX | STEPFARE_GRACE_SECONDS) ;;
    # The shell's own, which cannot be unset.
    UID | EUID | PPID | PWD | OLDPWD | SHLVL | IFS | SHELLOPTS | BASHOPTS | BASH_VERSINFO | _) ;;
    *[!A-Za-z0-9_]* | [0-9]*) ;;
    *) unset "$name" ;;
    esac
done

if command -v setsid >/dev/null 2>&1; then
    setsid sh "$here/node.sh" "$@" </dev/null >>"$folder/log" 2>&1 &
else
    # macOS has no setsid; its perl has.
    perl -MPOSIX -e 'POSIX::setsid(); exec @ARGV' sh "$here/node.sh" "$@" </dev/null >>"$folder/log" 2>&1 &
fi

waited=0
while [ ! -e "$folder/up" ]; do
    if [ -e "$folder/refused" ]; then
        cat "$folder/refused" >&2
        exit 1
    fi
    if [ "$waited" -ge 300 ]; then
        echo "the node's process did not start within 30 seconds" >&2
        exit 1
    fi
    waited=$((waited + 1))
    sleep 0.1
done
