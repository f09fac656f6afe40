#!/bin/sh
# stock.sh PID REGION ZONE INSTANCE_TYPE MARKET: takes a machine out of $STEPFARE_SANDBOX/stock for that process, as long as
# the process lives. The first line that fits counts, over all run directories; what no line speaks of is not limited; in a
# place that is closed there is none. Exit 1 with the reason on stderr when none is left.
set -eu
umask 077
. "$(dirname "$0")/birth.sh"
pid=$1 region=$2 zone=$3 type=$4 market=$5

none_left() {
    [ "$zone" != - ] || zone=$region
    echo "InsufficientInstanceCapacity: the sandbox has no $type $market left in $zone" >&2
    exit 1
}

# shellcheck disable=SC2046
set -- $(awk -v r="$region" -v z="$zone" -v t="$type" -v m="$market" -v now="$(date +%s)" '
    $1 == "closed" && ($2 == r || $2 == z) && ($3 == "-" || $3 + 0 > now) { closed = 1 }
    !fits && $1 == r && ($2 == "-" || $2 == z) && $3 == t && $4 == m { fits = 1; place = $2; machines = $5 }
    END { if (closed) print "!"; else if (fits) print place, machines }' "$STEPFARE_SANDBOX/stock")
[ $# -gt 0 ] || exit 0
[ "$1" != ! ] || none_left
place=$1 machines=${2:-}
case $machines in
'' | *[!0-9]*)
    echo "$STEPFARE_SANDBOX/stock: '$machines' is not a number of machines" >&2
    exit 1
    ;;
esac

# One at a time. The file with the highest number says whose turn it is, and a process that has ended has had its turn:
# nothing has to be given back, so that a killed process holds nobody up. A link is made with its content, or not at all.
turns=$STEPFARE_SANDBOX/turns
mkdir -p "$turns"
mine=$turns/new.$$
trap 'rm -f "$mine"' EXIT
echo "$$ $(birth $$)" >"$mine"

latest() {
    last=0
    for turn in "$turns"/[0-9]*; do
        [ "${turn##*/}" -gt "$last" ] 2>/dev/null && last=${turn##*/}
    done
    return 0
}

while :; do
    latest
    if [ "$last" -eq 0 ] || ! { read -r holder since <"$turns/$last"; } 2>/dev/null || ! runs "$holder" "$since"; then
        turn=$((last + 1))
        if ln "$mine" "$turns/$turn" 2>/dev/null; then
            got=$turn
            latest
            # Otherwise what was seen above was old, and others have had turns since.
            [ "$last" -gt "$got" ] || break
            rm -f "$turns/$got"
        fi
    fi
    sleep 0.05
done
for turn in "$turns"/[0-9]*; do
    [ "${turn##*/}" -ge "$got" ] || rm -f "$turn"
done

taken=$STEPFARE_SANDBOX/taken/$region,$place,$type,$market
mkdir -p "$taken"
count=0
for entry in "$taken"/*; do
    since=
    { read -r since <"$entry"; } 2>/dev/null || :
    if runs "${entry##*/}" "$since"; then
        count=$((count + 1))
    else
        rm -f "$entry"
    fi
done
[ "$count" -lt "$machines" ] || none_left
birth "$pid" >"$taken/$pid"
