#!/bin/sh
# As the Deep Learning AMI's: makes one volume of all local disks, and may end after user data began. The volume is a
# disk of its own here, since the kernel of a test may know no device mapper.
set -eu
until pgrep -f mount-nvme.sh >/dev/null; do sleep 0.1; done
sleep 1
mkdir -p /opt/dlami/nvme
mount "$(cat /etc/stand-in/volume)" /opt/dlami/nvme
