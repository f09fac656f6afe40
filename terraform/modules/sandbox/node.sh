#!/bin/sh
# node.sh COMMAND...: becomes the command. Writes its own pid first, so that whoever is killed meanwhile, no node runs without
# a pid file.
set -eu
. "$(dirname "$0")/birth.sh"
cd "$STEPFARE_NODE_FOLDER"
birth $$ >born
echo $$ >pid.new
mv pid.new pid
exec "$@"
