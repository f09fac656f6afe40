"""Two shell scripts and a systemd unit, as text, that start the agent on a new machine."""

from __future__ import annotations

# fetch-agent.sh URL SHA256 FILE [CA]
FETCH_AGENT = """\
#!/bin/sh
set -eu
umask 022
tries=60
until curl --fail --silent --show-error --location --max-time 60 ${4:+--cacert "$4"} --output "$3.part" "$1"; do
  tries=$((tries - 1))
  [ $tries -gt 0 ] || { echo "stepfare: no agent at $1" >&2; exit 1; }
  sleep 5
done
echo "$2  $3.part" | sha256sum --check --status || { echo "stepfare: not the agent that was named" >&2; exit 1; }
chmod 0755 "$3.part"
mv "$3.part" "$3"
"""

# mount-nvme.sh FOLDER [DISKS]. The names are those that the clouds' images give to disks that belong to the machine. A
# disk that holds data already is left alone.
MOUNT_NVME = """\
#!/bin/sh
set -eu
folder=$1 by=${2:-/dev/disk/by-id}
mkdir -p "$folder"
if mountpoint -q "$folder"; then exit 0; fi
disks=$(for disk in "$by"/nvme-Amazon_EC2_NVMe_Instance_Storage_* "$by"/google-local-nvme-ssd-* \\
  "$by"/nvme-Microsoft_NVMe_Direct_Disk*; do
  case $disk in *-part[0-9]*) continue;; esac
  [ -e "$disk" ] && readlink -f "$disk" || true
done | sort -u)
free=
for disk in $disks; do
  if [ -z "$(lsblk -nro FSTYPE,PTTYPE "$disk" | tr -d ' \\n')" ]; then free="$free $disk"; fi
done
set -- $free
case $# in
  0) echo "stepfare: no unused local NVMe disk; $folder lies on the boot disk" >&2; exit 0;;
  1) device=$1;;
  *) device=$1
     if command -v mdadm >/dev/null; then
       device=/dev/md/stepfare
       mdadm --create "$device" --run --level=0 --raid-devices=$# "$@"
     else
       echo "stepfare: no mdadm; only $1 of $# disks is used" >&2
     fi;;
esac
mkfs.ext4 -q -E nodiscard -m 0 "$device"
mount -o noatime,discard "$device" "$folder"
"""

# KillMode=mixed: the agent is asked to stop and asks the training; whatever remains at the end is killed with the
# cgroup. OOMPolicy=continue: the agent reports a training process that the kernel kills.
UNIT = """\
[Unit]
Description={description}
Wants=network-online.target
After=network-online.target docker.service

[Service]
Type=exec
ExecStart=/usr/bin/env python3 -I {agent} {config}
{after}Restart=no
KillMode=mixed
TimeoutStopSec={seconds}
OOMPolicy=continue
Environment=HOME=/root
LimitMEMLOCK=infinity
LimitSTACK=67108864
LimitNOFILE=1048576
TasksMax=infinity
"""
