#!/bin/sh
# node.sh COMMAND...: becomes the command, in the folder STEPFARE_NODE_FOLDER. Writes its own pid first, so that whoever is
# killed meanwhile, no node runs without a pid file. Says `up` when it goes on, `refused` with the reason when it may not.
set -eu
scripts=$(cd "$(dirname "$0")" && pwd)
. "$scripts/birth.sh"
cd "$STEPFARE_NODE_FOLDER"

# Whoever started this may have been killed, and the node stopped, before this ran: stop.sh takes `wanted` away.
wanted() {
    [ "$(cat wanted 2>/dev/null)" = "$STEPFARE_WANTED" ]
}

wanted || exit 1
birth $$ >born
echo $$ >pid.new
mv pid.new pid
if [ -f "${STEPFARE_SANDBOX:-}/stock" ]; then
    # shellcheck disable=SC2086
    if ! sh "$scripts/stock.sh" $$ $STEPFARE_MACHINE 2>refused.new; then
        rm -f pid born
        mv refused.new refused
        exit 1
    fi
    rm -f refused.new
fi
wanted || exit 1
unset STEPFARE_WANTED STEPFARE_MACHINE
: >up
exec "$@"
