"""Shell scripts that set up a fabric on a new machine; ``pricing/tables/fabrics.csv`` names them with their images."""

from __future__ import annotations

from types import MappingProxyType

# setup-gib.sh INSTALLER
_GIB = """\
#!/bin/sh
set -eu
modprobe -a ib_uverbs mlx5_ib || true
docker run --rm --network=host --volume=/usr/local/gib:/var/lib/gib --entrypoint=/scripts/container_entry.sh "$1" \\
  install --install-nccl
"""

# setup-tcpxo.sh PLUGIN DAEMON. Devices of the cards (Google's, 1ae0:0084) are bound below /dev/aperture_devices, where
# plugin and daemon look for them. The daemon says when it is ready, after half a minute.
_TCPXO = """\
#!/bin/sh
set -eu
plugin=$1 daemon=$2 apt=/etc/apt/sources.list.d
export DEBIAN_FRONTEND=noninteractive
if ! modprobe import-helper; then
  key=/etc/apt/keyrings/google.asc
  mkdir -p -m 0755 "${key%/*}"
  curl --fail --silent --show-error --location --output $key https://packages.cloud.google.com/apt/doc/apt-key.gpg
  echo "deb [signed-by=$key] https://packages.cloud.google.com/apt apt-transport-artifact-registry-stable main" \\
    >$apt/stepfare-registry.list
  apt-get -q update
  apt-get -q -y install apt-transport-artifact-registry dkms "linux-headers-$(uname -r)"
  echo "deb [arch=all trusted=yes] ar+https://us-apt.pkg.dev/projects/gce-ai-infra gpudirect-tcpxo-apt main" \\
    >$apt/stepfare-tcpxo.list
  apt-get -q update
  cd "$(mktemp -d)"
  apt-get -q download dmabuf-import-helper=1.1
  dpkg-deb -x ./*.deb .
  cp -r usr/src/dmabuf-import-helper-1.1 /usr/src/
  # From Linux 6.13 on the name is a string.
  case $(uname -r) in
    [1-5].*|6.?.*|6.1[0-2].*) ;;
    *) sed -i 's/MODULE_IMPORT_NS(DMA_BUF)/MODULE_IMPORT_NS("DMA_BUF")/' \\
         /usr/src/dmabuf-import-helper-1.1/import-helper.c;;
  esac
  dkms install -m dmabuf-import-helper -v 1.1
  modprobe import-helper
fi
for device in /sys/bus/pci/devices/*; do
  [ "$(cat "$device/vendor" "$device/device" | tr '\\n' ' ')" = "0x1ae0 0x0084 " ] || continue
  folder=/dev/aperture_devices/${device##*/}
  mkdir -p "$folder"
  mountpoint -q "$folder" || mount --bind "$(readlink -f "$device")" "$folder"
  chmod 0666 "$folder"/resource*
done
docker run --rm --network=host --volume=/var/lib:/var/lib "$plugin" install --install-nccl
docker rm --force stepfare-tcpxo >/dev/null 2>&1 || true
docker run --detach --name stepfare-tcpxo --restart=on-failure --cap-add=NET_ADMIN --network=host --privileged \\
  --gpus=all --volume=/dev/dmabuf_import_helper:/dev/dmabuf_import_helper \\
  --env=LD_LIBRARY_PATH=/usr/lib/x86_64-linux-gnu "$daemon" --num_hops=2 --num_nics=8 --uid= --alsologtostderr
tries=60
until docker logs stepfare-tcpxo 2>&1 | grep -q "Buffer manager initialization complete"; do
  tries=$((tries - 1))
  [ $tries -gt 0 ] || { echo "stepfare: the receive daemon of TCPXO is not ready" >&2; exit 1; }
  sleep 2
done
mkdir -p /run/stepfare
touch /run/stepfare/tcpxo-ready
"""

FABRIC_SCRIPTS = MappingProxyType({"setup-gib.sh": _GIB, "setup-tcpxo.sh": _TCPXO})
