"""Pack the node agent, and render the user data that starts it on a new machine as a systemd service. Pure."""

from __future__ import annotations

import ast
import io
import json
import tokenize
import zipfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.parse import urlsplit

import yaml

import router.agent
from router.agent.config import AgentConfig, parse_config
from router.agent.protocol import END_SERVICE, HELPERS, LIFETIME_TIMER, LOOPBACK

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


# boot-step.sh COMMAND...: the agent reports what a step that failed said last (router/agent/preflight.py).
BOOT_STEP = """\
#!/bin/sh
said=/run/stepfare-boot-step
{ "$@" 2>&1; echo $? >$said.code; } | tee $said
code=$(cat $said.code)
[ "$code" = 0 ] || { echo "$(basename "$1") ended with $code:"; tail -n 5 $said; } >>/var/log/stepfare/boot-problems
"""

# fetch-agent.sh URL SHA256 FILE SECONDS [CA]. The time of day may be set while a machine boots.
FETCH_AGENT = """\
#!/bin/sh
set -eu
umask 022
up() { cut -d. -f1 /proc/uptime; }
ends=$(($(up) + $4))
until curl --fail --silent --show-error --location --max-time 60 ${5:+--cacert "$5"} --output "$3.part" "$1"; do
  [ "$(up)" -lt $ends ] || { echo "stepfare: no agent at $1 within $4 s" >&2; exit 1; }
  sleep 5
done
echo "$2  $3.part" | sha256sum --check --status || { echo "stepfare: not the agent that was named" >&2; exit 1; }
chmod 0755 "$3.part"
mv "$3.part" "$3"
"""

# mount-nvme.sh FOLDER [DISKS]. The names are those that the clouds' images give to disks that belong to the machine. A
# disk that holds data already, by what blkid reads on it, is left alone. AWS's images make one volume of them all,
# maybe after this began.
MOUNT_NVME = """\
#!/bin/sh
set -eu
folder=$1 by=${2:-/dev/disk/by-id} volume=/opt/dlami/nvme
mkdir -p "$folder"
if mountpoint -q "$folder"; then exit 0; fi
disks=$(for disk in "$by"/nvme-Amazon_EC2_NVMe_Instance_Storage_* "$by"/google-local-nvme-ssd-* \\
  "$by"/nvme-Microsoft_NVMe_Direct_Disk*; do
  case $disk in *-part[0-9]*) continue;; esac
  [ -e "$disk" ] && readlink -f "$disk" || true
done | sort -u)
[ -n "$disks" ] || { echo "stepfare: no local NVMe disk; $folder lies on the boot disk" >&2; exit 0; }
if systemctl is-enabled --quiet dlami-nvme.service 2>/dev/null; then
  tries=120
  until mountpoint -q $volume; do
    tries=$((tries - 1))
    [ $tries -gt 0 ] || { echo "stepfare: dlami-nvme.service mounts nothing at $volume" >&2; exit 1; }
    sleep 1
  done
  [ "$folder" = $volume ] || mount --bind $volume "$folder"
  exit 0
fi
free=
for disk in $disks; do
  blkid -p "$disk" >/dev/null && code=0 || code=$?
  if [ $code -eq 2 ]; then free="$free $disk"; fi
done
set -- $free
case $# in
  0) echo "stepfare: the local NVMe disks are taken; $folder lies on the boot disk:" >&2
     blkid -p $disks >&2; exit 1;;
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

# install-containers.sh DOCKER TOOLKIT: what an image without a container runtime lacks, from where and in the way that
# Docker ("Install Docker Engine on Ubuntu") and NVIDIA ("Installing the NVIDIA Container Toolkit") document.
INSTALL_CONTAINERS = """\
#!/bin/sh
set -eu
if command -v docker >/dev/null && command -v nvidia-ctk >/dev/null; then exit 0; fi
. /etc/os-release
export DEBIAN_FRONTEND=noninteractive
keys=/etc/apt/keyrings
docker=5:$1-1~ubuntu.$VERSION_ID~$VERSION_CODENAME toolkit=$2-1
again() {
  tries=24
  until "$@"; do
    tries=$((tries - 1))
    [ $tries -gt 0 ] || { echo "stepfare: no container runtime: $*" >&2; exit 1; }
    sleep 5
  done
}
key() {
  again curl --fail --silent --show-error --location --max-time 60 --output "$keys/$1.asc" "$2"
  chmod 0644 "$keys/$1.asc"
}
mkdir -p -m 0755 "$keys"
key docker https://download.docker.com/linux/ubuntu/gpg
key nvidia https://nvidia.github.io/libnvidia-container/gpgkey
list() { echo "deb [signed-by=$keys/$1.asc] $2" >"/etc/apt/sources.list.d/stepfare-$1.list"; }
list docker "https://download.docker.com/linux/ubuntu $VERSION_CODENAME stable"
list nvidia "https://nvidia.github.io/libnvidia-container/stable/deb/\\$(ARCH) /"
again apt-get -q update
again apt-get -q -y --no-install-recommends install "docker-ce=$docker" "docker-ce-cli=$docker" containerd.io \\
  "nvidia-container-toolkit=$toolkit" "nvidia-container-toolkit-base=$toolkit" "libnvidia-container-tools=$toolkit" \\
  "libnvidia-container1=$toolkit"
nvidia-ctk runtime configure --runtime=docker
systemctl restart docker
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

# A machine whose agent is gone ends all the same: the agent starts this timer anew while its coordinator answers.
_TIMER_UNIT = f"""\
[Timer]
OnActiveSec={{seconds}}
Unit={END_SERVICE}
[Install]
WantedBy=timers.target
"""
# On Azure a machine that is only switched off is billed on.
_END_UNIT = """\
[Service]
Type=oneshot
{before}ExecStart=/usr/bin/env systemctl poweroff
"""
_DEALLOCATE = "ExecStart=-/usr/bin/env python3 -I {agent} --deallocate\n"
# The agent is to end the machine first.
_TIMER_MARGIN_S = 3600

# The smallest user data limit of any cloud, in bytes before encoding for transport.
MAX_USER_DATA_BYTES = 16 * 1024
# Files with secrets, which a script writes beside itself; nobody needs them once the machine is gone.
SECRET_FILES = ("token", "env.json")
ETC, OPT, VAR, LOGS = "/etc/stepfare", "/opt/stepfare", "/var/lib/stepfare", "/var/log/stepfare"


class UserDataTooLargeError(ValueError):
    """The user data exceeds the limit of the clouds; the message says what to do."""


@dataclass(frozen=True, slots=True)
class CoordinatorEndpoint:
    """The address of the coordinator for machines.

    ``agent_sha256``: in hex, of the agent that it serves to anybody. ``ca``: PEM text of a private authority that
    signed its certificate.
    """

    url: str
    agent_sha256: str
    ca: str | None = None

    @property
    def agent_url(self) -> str:
        """Return where machines download the agent."""
        return f"{self.url.rstrip('/')}/v1/agents/{self.agent_sha256}"


@dataclass(frozen=True, slots=True)
class NodeSecrets:
    """Secrets that only the machines may see; none of them appears in a repr."""

    token: str = field(repr=False)
    plain: Mapping[str, str] = field(default_factory=dict, repr=False)
    secret: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class Bootstrap:
    """Everything that one new machine of a gang is told.

    ``config`` says what its agent does; its paths are replaced by those of the machine. ``local_nvme``: where to mount
    the machine's own disks, striped; the job then works there, and a container sees the folder under the same name.
    ``containers``: the versions of Docker and of NVIDIA's toolkit to install, None where the image
    has them or the job needs none. ``deallocates``: the machine asks Azure to release it before it switches itself off.
    ``fabric_setup``: one of ``FABRIC_SCRIPTS`` with its arguments, None for none.
    """

    config: AgentConfig
    home: CoordinatorEndpoint
    secrets: NodeSecrets
    local_nvme: str | None = None
    containers: tuple[str, str] | None = None
    deallocates: bool = False
    fabric_setup: str | None = None


def render_cloud_init(spec: Bootstrap) -> str:
    """Return the user data; the same spec always gives the same text.

    Raises :class:`UserDataTooLargeError`, and ``BadConfig`` for a configuration that the agent would refuse.
    """
    nvme = spec.local_nvme
    config = spec.config
    if nvme is not None and config.code.kind == "image":
        config = replace(config, mounts=(*config.mounts, f"{nvme}:{nvme}"))
    config = _checked_config(
        config,
        workdir=f"{VAR if nvme is None else nvme}/work",
        token_file=f"{ETC}/token",
        env_file=f"{ETC}/env.json",
        ca_file=f"{ETC}/ca.pem" if spec.home.ca is not None else None,
        log_folder=LOGS,
        spool_folder=f"{VAR}/spool",
    )
    files = [
        _file_entry(f"{ETC}/agent.json", "0600", json.dumps(non_default_settings(config), indent=1) + "\n"),
        *(_file_entry(f"{ETC}/{name}", "0600", text) for name, text in _secret_files(spec.secrets).items()),
    ]
    if spec.home.ca is not None:
        files.append(_file_entry(f"{ETC}/ca.pem", "0644", spec.home.ca))
    commands: list[list[str] | str] = [["mkdir", "-p", "-m", "0755", VAR, LOGS]]
    step = f"{OPT}/boot-step.sh"
    if any(part is not None for part in (nvme, spec.containers, spec.fabric_setup)):
        files.append(_file_entry(step, "0755", BOOT_STEP))
    if nvme is not None:
        files.append(_file_entry(f"{OPT}/mount-nvme.sh", "0755", MOUNT_NVME))
        commands.append([step, f"{OPT}/mount-nvme.sh", nvme])
    if spec.containers is not None:
        files.append(_file_entry(f"{OPT}/install-containers.sh", "0755", INSTALL_CONTAINERS))
        commands.append([step, f"{OPT}/install-containers.sh", *spec.containers])
    if spec.fabric_setup is not None:
        name, *arguments = spec.fabric_setup.split()
        files.append(_file_entry(f"{OPT}/{name}", "0755", FABRIC_SCRIPTS[name]))
        commands.append([step, f"{OPT}/{name}", *arguments])
    files.append(_file_entry(f"{OPT}/fetch-agent.sh", "0755", FETCH_AGENT))
    agent, seconds = f"{OPT}/agent.pyz", str(round(config.lease_seconds or config.gang_seconds))
    authority = [f"{ETC}/ca.pem"] if spec.home.ca is not None else []
    commands.append([f"{OPT}/fetch-agent.sh", spec.home.agent_url, spec.home.agent_sha256, agent, seconds, *authority])
    if config.power_off:
        # Without an agent the machine is of no use, and nobody would hear of it.
        commands.append(f"test -e {agent} || systemctl poweroff")
    files.append(_file_entry("/etc/systemd/system/stepfare-agent.service", "0644", _systemd_unit(config)))
    commands.append(["systemctl", "daemon-reload"])
    if config.power_off and config.lease_seconds is not None:
        lifetime = round((config.lifetime_seconds or 0.0) + config.lease_seconds + _TIMER_MARGIN_S)
        files.append(_file_entry(f"/etc/systemd/system/{LIFETIME_TIMER}", "0644", _TIMER_UNIT.format(seconds=lifetime)))
        before = _DEALLOCATE.format(agent=f"{OPT}/agent.pyz") if spec.deallocates else ""
        files.append(_file_entry(f"/etc/systemd/system/{END_SERVICE}", "0644", _END_UNIT.format(before=before)))
        commands.append(["systemctl", "enable", "--now", LIFETIME_TIMER])
    commands.append(["systemctl", "start", "--no-block", "stepfare-agent.service"])
    text = "#cloud-config\n" + yaml.dump(
        {"write_files": files, "runcmd": commands},
        Dumper=_BlockTextDumper,
        sort_keys=False,
        width=10_000,
        allow_unicode=True,
    )
    _check_size(text, "user data of {:,} bytes")
    return text


def _secret_files(secrets: NodeSecrets) -> dict[str, str]:
    environment = {"plain": dict(secrets.plain), "secret": dict(secrets.secret)}
    return dict(zip(SECRET_FILES, (f"{secrets.token}\n", json.dumps(environment) + "\n"), strict=True))


def _checked_config(config: AgentConfig, **paths: str | None) -> AgentConfig:
    return parse_config(json.loads(json.dumps({**asdict(config), **paths})))


def _check_size(text: str, subject: str) -> None:
    size = len(text.encode())
    if size > MAX_USER_DATA_BYTES:
        raise UserDataTooLargeError(
            f"{subject.format(size)}, at most {MAX_USER_DATA_BYTES:,} fit: "
            "shorten the command and the environment of the job"
        )


def non_default_settings(config: AgentConfig) -> dict[str, Any]:
    """Return the configuration without its default values, because user data is limited in size."""
    plain = AgentConfig(
        attempt="",
        job="",
        rank=-1,
        nodes=0,
        command="",
        workdir="",
        coordinator="",
        token_file="",
        log_folder="",
        spool_folder="",
    )
    default = asdict(plain)
    return {name: value for name, value in asdict(config).items() if value != default[name]}


def _systemd_unit(config: AgentConfig) -> str:
    clean_up = f"-/usr/bin/env docker rm --force stepfare-{config.attempt}-{config.rank}"
    after = [clean_up] if config.code.kind == "image" else []
    if config.power_off and config.lease_seconds is not None:
        # An agent that crashed renews no lease.
        after.append(
            f"-/usr/bin/env systemd-run --on-active={round(config.lease_seconds)} systemctl start {END_SERVICE}"
        )
    return UNIT.format(
        description=f"stepfare rank {config.rank} of {config.attempt}",
        agent=f"{OPT}/agent.pyz",
        config=f"{ETC}/agent.json",
        # The agent's own grace period, and time to report how the training ended.
        seconds=int(config.grace_seconds) + 60,
        after="".join(f"ExecStopPost={line}\n" for line in after),
    )


def _file_entry(path: str, permissions: str, content: str) -> dict[str, str]:
    return {"path": path, "permissions": permissions, "owner": "root:root", "content": content}


class _BlockTextDumper(yaml.SafeDumper):
    """A YAML dumper that writes multi-line strings as blocks."""


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_BlockTextDumper.add_representer(str, _represent_text)


# Paths are relative here because only the script knows its own folder.
_PATHS = ("workdir", "token_file", "env_file", "ca_file", "log_folder", "spool_folder")

_SCRIPT = '''\
#!/usr/bin/env python3
"""stepfare: rank {rank} of {attempt}."""
import hashlib, http.client, json, os, ssl, sys, time, urllib.request
FOLDER = os.environ.get("STEPFARE_NODE_FOLDER") or os.path.dirname(os.path.abspath(__file__))
FILES = {files}
os.umask(0o077)
config = json.loads(FILES["agent.json"])
for name in {paths}:
    if name in config:
        config[name] = os.path.join(FOLDER, config[name])
FILES["agent.json"] = json.dumps(config)
for name, text in FILES.items():
    with open(os.path.join(FOLDER, name), "w", encoding="utf-8") as stream:
        stream.write(text)
agent = os.path.join(FOLDER, "agent.pyz")
limit = time.monotonic() + {seconds}
handlers = []
if {url}.startswith("https"):
    handlers.append(urllib.request.HTTPSHandler(context=ssl.create_default_context(cafile={ca})))
if {loopback}:
    handlers.append(urllib.request.ProxyHandler({{}}))
opener = urllib.request.build_opener(*handlers)
while True:
    try:
        with opener.open({url}, timeout=10) as answer:
            data = answer.read()
        if hashlib.sha256(data).hexdigest() != {sha256}:
            sys.exit("stepfare: the agent is not the one that was ordered")
        break
    except (OSError, http.client.HTTPException) as error:
        if time.monotonic() > limit:
            sys.exit("stepfare: no agent to be had: %s" % error)
        time.sleep(0.5)
with open(agent, "wb") as stream:
    stream.write(data)
os.execv(sys.executable, [sys.executable, "-I", agent, os.path.join(FOLDER, "agent.json")])
'''


def node_script(spec: Bootstrap) -> str:
    """Return the script, which downloads and starts the agent; the same spec always gives the same text.

    Raises :class:`UserDataTooLargeError`, and ``BadConfig`` for a configuration that the agent would refuse.
    ``local_nvme`` is ignored: such machines keep their disks as they are.
    """
    config = _checked_config(
        spec.config,
        workdir="work",
        token_file="token",
        env_file="env.json",
        ca_file="ca.pem" if spec.home.ca is not None else None,
        log_folder="log.d",
        spool_folder="spool",
    )
    files = {"agent.json": json.dumps(non_default_settings(config)) + "\n", **_secret_files(spec.secrets)}
    if spec.home.ca is not None:
        files["ca.pem"] = spec.home.ca
    text = _SCRIPT.format(
        rank=config.rank,
        attempt=config.attempt,
        files=repr(files),
        paths=repr(_PATHS),
        seconds=repr(config.gang_seconds),
        ca='os.path.join(FOLDER, "ca.pem")' if spec.home.ca is not None else "None",
        url=repr(spec.home.agent_url),
        loopback=repr(urlsplit(spec.home.agent_url).hostname in LOOPBACK),
        sha256=repr(spec.home.agent_sha256),
    )
    _check_size(text, "{:,} bytes for the node's script")
    return text


SHEBANG = b"#!/usr/bin/env python3\n"
_START = "import sys\nfrom router.agent.__main__ import main\nsys.exit(main(sys.argv[1:], sys.argv[0]))\n"
_FIXED_DATE = (1980, 1, 1, 0, 0, 0)


def pack_agent() -> bytes:
    """Return the agent as a zipapp; the same sources give the same bytes on any machine.

    Docstrings and comments are left out and line numbers stay; the helpers for jobs are packed unchanged, because
    people read them. Files are stored without compression: compressed as a whole they become smaller, and the output of
    deflate depends on the zlib at hand.
    """
    folder = Path(router.agent.__file__).parent
    modules = {
        f"router/agent/{file.name}": _strip_docstrings(file.read_text(encoding="utf-8")) for file in folder.glob("*.py")
    }
    helpers = {
        f"router/agent/helper/{name}": (folder / "helper" / name).read_text(encoding="utf-8") for name in HELPERS
    }
    files = {"__main__.py": _START, "router/__init__.py": "", **modules, **helpers}
    packed = io.BytesIO()
    packed.write(SHEBANG)
    with zipfile.ZipFile(packed, "a", zipfile.ZIP_STORED) as archive:
        for name, text in sorted(files.items()):
            entry = zipfile.ZipInfo(name, _FIXED_DATE)
            entry.create_system = 3
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, text.encode())
    return packed.getvalue()


@cache
def _strip_docstrings(source: str) -> str:
    """Return the source without docstrings and comments, line for line: some clouds take only 16 KiB of user data."""
    lines = source.splitlines()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            line, column = token.start
            lines[line - 1] = lines[line - 1][:column].rstrip()
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) or ast.get_docstring(node) is None:
            continue
        docstring = node.body[0]
        assert docstring.end_lineno is not None
        lines[docstring.lineno - 1 : docstring.end_lineno] = [
            " " * docstring.col_offset + '""',
            *[""] * (docstring.end_lineno - docstring.lineno),
        ]
    return "\n".join(lines) + "\n"
