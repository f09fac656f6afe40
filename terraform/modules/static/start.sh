#!/bin/sh
# start.sh: starts the script beside it, detached: a session of its own, output to log, who leads it in pid, its exit code
# in code. Stops what an earlier start left. Exit 1 when nothing came up.
set -eu
umask 077
cd "$(dirname "$0")"
here=$(pwd)
sh "$here/stop.sh" start
chmod 700 script
case $(head -c 2 script) in
'#!') run='./script' ;;
*) run='sh ./script' ;;
esac
# The leader stays for as long as the script runs, under a name by which stop.sh knows it.
cat >run.sh <<END
echo "\$\$ \$(cat /proc/sys/kernel/random/boot_id 2>/dev/null || echo -)" >pid.new
mv pid.new pid
$run && echo 0 >code || echo "\$?" >code
END
setsid sh "$here/run.sh" </dev/null >>log 2>&1 &
waited=0
while [ ! -s pid ]; do
    if [ "$waited" -ge 100 ]; then
        echo "the script did not start within 10 seconds" >&2
        exit 1
    fi
    waited=$((waited + 1))
    sleep 0.1
done
