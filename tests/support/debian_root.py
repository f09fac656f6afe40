"""A root folder of Debian with cloud-init and systemd, made once a machine from Debian's packages, and shared.

It also holds an archive with stand-ins for the packages of Docker and NVIDIA, signed by a key of its own, and the
certificate that the root trusts for whoever plays the vendors' servers.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from pricing.machine_images import machine_images
from tests.support.certificates import write_certificate
from tests.support.repository import cached_folder

TOOLS = Path(__file__).with_name("machine_tools")
SUITE, MIRROR = "bookworm", "http://deb.debian.org/debian"
# cloud-init and systemd of Debian itself, and what both clouds' images and the boot scripts need.
PACKAGES = (
    *("systemd", "systemd-sysv", "dbus", "cloud-init", "python3", "curl", "ca-certificates", "apt", "gpg", "gpg-agent"),
    *("iproute2", "procps", "kmod", "e2fsprogs", "util-linux", "mount"),
)
_LEFT_OUT = [f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in ("doc", "man", "locale", "info")]
# Units that a machine without a screen, a clock of its own or a network to Debian only loses time with.
_MASKED = (
    *("apt-daily.timer", "apt-daily-upgrade.timer", "dpkg-db-backup.timer", "e2scrub_all.timer", "fstrim.timer"),
    *("systemd-logind.service", "systemd-timesyncd.service", "console-getty.service", "getty@.service"),
    *("systemd-networkd.service", "cloud-init-hotplugd.socket", "systemd-update-utmp.service"),
)
HOSTS = ("download.docker.com", "nvidia.github.io", "registry.example.com")
CODENAME, RELEASE = "noble", "24.04"
# Those of Ubuntu that images have: whether it is the later one.
RELEASES = {False: ("jammy", "22.04"), True: (CODENAME, RELEASE)}
LINK = "-> "
_PROBE = """\
cd "$0"
mkdir lower upper work root group
mount -t overlay overlay -o lowerdir=lower,upperdir=upper,workdir=work root
mount -t cgroup2 cgroup2 group
"""
_TIME_LIMIT = 900


@dataclass(frozen=True)
class DebianRoot:
    """``files`` is the root, ``archive`` what the vendors' servers serve, by host; PEM files of these servers."""

    files: Path
    archive: Path
    certificate: Path
    key: Path

    def settings(self) -> dict[str, str]:
        """Return the files by which the root becomes a machine of no cloud, without a network to Debian."""
        trusted = (self.files / "etc/ssl/certs/ca-certificates.crt").read_text() + self.certificate.read_text()
        return {
            "etc/apt/sources.list": "",
            # No cloud's own service is asked: what a cloud passes on lies in the seed folder.
            "etc/cloud/cloud.cfg.d/90-stand-in.cfg": "datasource_list: [NoCloud]\nmanage_etc_hosts: false\n",
            "etc/hosts": "127.0.0.1 localhost\n" + "".join(f"127.0.0.1 {host}\n" for host in HOSTS),
            "etc/resolv.conf": "",
            "etc/systemd/journald.conf.d/stand-in.conf": "[Journal]\nStorage=persistent\nSyncIntervalSec=1s\n",
            "etc/ssl/certs/ca-certificates.crt": trusted,
        }


@cache
def debian_root() -> DebianRoot:
    """Return the root, made when it is missing (one to two minutes); skip the test where none can be made."""
    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip("a root folder of Debian is made and entered by root on Linux")
    if missing := [
        tool for tool in ("apt-get", "dpkg-deb", "losetup", "mkfs.ext4", "ip") if shutil.which(tool) is None
    ]:
        pytest.skip(f"no {', '.join(missing)} here")
    isolated = ["unshare", "--mount", "--pid", "--net", "--uts", "--ipc", "--cgroup", "--fork", "--kill-child"]
    with tempfile.TemporaryDirectory() as scratch:
        probe = subprocess.run([*isolated, "sh", "-ec", _PROBE, scratch], capture_output=True, text=True)
    if probe.returncode:
        pytest.skip(f"no namespaces, overlay or control groups here: {probe.stderr.strip()[-200:]}")
    base = cached_folder("debian-root", repr((PACKAGES, _LEFT_OUT, _MASKED, SUITE, MIRROR)).encode(), _make_root)
    content = b"".join(file.read_bytes() for file in (Path(__file__), *sorted(TOOLS.iterdir())))
    root = base / "root"
    archive = cached_folder(
        "debian-archive", content + repr(_versions()).encode(), lambda folder: _make_archive(root, folder)
    )
    return DebianRoot(root, archive / "hosts", archive / "cert.pem", archive / "key.pem")


def _make_root(folder: Path) -> None:
    tools, root = folder / "tools", folder / "root"
    # A new machine has no lists of packages yet.
    for command in (["download", "mmdebstrap"], ["update"], ["download", "mmdebstrap"]):
        if not [*folder.glob("mmdebstrap_*.deb")]:
            subprocess.run(["apt-get", "-q", *command], cwd=folder, capture_output=True, timeout=_TIME_LIMIT)
    packages = [*folder.glob("mmdebstrap_*.deb")]
    if not packages:
        pytest.skip("apt has no mmdebstrap to give")
    subprocess.run(["dpkg-deb", "-x", packages[0], tools], check=True)
    make = [str(tools / "usr/bin/mmdebstrap"), "--quiet", "--mode=root", "--variant=essential"]
    make += [f"--include={','.join(PACKAGES)}", '--aptopt=Acquire::Languages "none"', "--dpkgopt=force-unsafe-io"]
    make += [*_LEFT_OUT, SUITE, str(root), MIRROR]
    environment = {**os.environ, "PATH": f"{tools / 'usr/bin'}:{os.environ['PATH']}"}
    subprocess.run(make, check=True, env=environment, timeout=_TIME_LIMIT)
    for unit in _MASKED:
        (root / "etc/systemd/system" / unit).unlink(missing_ok=True)
        (root / "etc/systemd/system" / unit).symlink_to("/dev/null")
    (root / "etc/machine-id").write_text("")


def _make_archive(root: Path, folder: Path) -> None:
    """Make the archives of both vendors in the form of their own, and the certificate of their servers."""
    write_certificate(folder, HOSTS, days=3650)
    hosts = folder / "hosts"
    docker, toolkit = _versions()
    engine, ours = f"5:{docker}-1~ubuntu.{RELEASE}~{CODENAME}", f"{toolkit}-1"
    tools = docker_files()
    engine_files = {name: tools[name] for name in ("usr/bin/dockerd", "usr/lib/systemd/system/docker.service")}
    ubuntu, nvidia = hosts / "download.docker.com/linux/ubuntu", hosts / "nvidia.github.io/libnvidia-container"
    suite, flat = ubuntu / "dists" / CODENAME, nvidia / "stable/deb/amd64"
    packages = [
        _Package("docker-ce", engine, f"docker-ce-cli (= {engine}), containerd.io", engine_files),
        _Package("docker-ce-cli", engine, "", {"usr/bin/docker": tools["usr/bin/docker"]}),
        _Package("containerd.io", "2.3.6-1", "", {}),
    ]
    index = _write_packages(ubuntu, "pool/", packages)
    _write_release(suite, {"stable/binary-amd64/Packages": index}, Suite=CODENAME, Components="stable")
    names = ("nvidia-container-toolkit", "nvidia-container-toolkit-base", "libnvidia-container-tools")
    configurer = {"usr/bin/nvidia-ctk": (TOOLS / "nvidia-ctk").read_text()}
    packages = [
        _Package(name, ours, f"{needed} (= {ours})", configurer if name.endswith("base") else {})
        for name, needed in zip(names, (*names[1:], "libnvidia-container1"), strict=True)
    ]
    packages.append(_Package("libnvidia-container1", ours, "", {}))
    _write_release(flat, {"Packages": _write_packages(flat, "./", packages)})
    _sign(root, folder, [suite / "Release", flat / "Release"])
    shutil.copy(folder / "signing/key.asc", ubuntu / "gpg")
    shutil.copy(folder / "signing/key.asc", nvidia / "gpgkey")


def _versions() -> tuple[str, str]:
    """Return the versions of Docker and of NVIDIA's toolkit that machines install, by the table of images."""
    (versions,) = {image.installs for image in machine_images() if image.installs is not None}
    return versions


@dataclass(frozen=True)
class _Package:
    name: str
    version: str
    depends: str
    files: Mapping[str, str]


def docker_files() -> dict[str, str]:
    """Return the files of an image that has Docker, by their path below the root."""
    return {
        "usr/bin/docker": (TOOLS / "docker").read_text(),
        "usr/bin/dockerd": (TOOLS / "dockerd").read_text(),
        "usr/lib/systemd/system/docker.service": (TOOLS / "docker.service").read_text(),
    }


def _write_packages(folder: Path, place: str, packages: Sequence[_Package]) -> str:
    """Build packages below a folder, and return their index."""
    index = []
    (folder / place).mkdir(parents=True, exist_ok=True)
    for package in packages:
        control = f"Package: {package.name}\nVersion: {package.version}\nArchitecture: amd64\n"
        control += "Maintainer: stand-in <root@localhost>\nDescription: stand-in\n"
        control += f"Depends: {package.depends}\n" if package.depends else ""
        deb = folder / place / f"{package.name}_{package.version.replace(':', '_')}_amd64.deb"
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            tree = Path(scratch) / "tree"
            write_files(tree, {"DEBIAN/control": control, **package.files})
            subprocess.run(["dpkg-deb", "--root-owner-group", "-b", tree, deb], check=True, capture_output=True)
        data = deb.read_bytes()
        digest = hashlib.sha256(data).hexdigest()
        index.append(f"{control}Filename: {place}{deb.name}\nSize: {len(data)}\nSHA256: {digest}\n")
    return "\n".join(index)


def _write_release(folder: Path, indexes: Mapping[str, str], **more: str) -> None:
    """Write the indexes of an archive and its release file."""
    lines = [*(f"{name}: {value}" for name, value in more.items())]
    lines += [f"Date: {dt.datetime.now(dt.UTC):%a, %d %b %Y %H:%M:%S} +0000", "Architectures: amd64", "SHA256:"]
    for name, text in indexes.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="ascii")
        lines.append(f" {hashlib.sha256(text.encode()).hexdigest()} {len(text)} {name}")
    (folder / "Release").write_text("\n".join(lines) + "\n", encoding="ascii")


def _sign(root: Path, folder: Path, releases: Sequence[Path]) -> None:
    """Make a key with the root's own gpg, and sign the release files with it as apt wants them."""
    scratch = folder / "signing"
    scratch.mkdir()
    for number, release in enumerate(releases):
        shutil.copy(release, scratch / str(number))
    sign = (
        "set -e; cd /srv; export GNUPGHOME=/srv/keys; mkdir -m 700 keys; "
        "gpg --batch -q --passphrase '' --quick-gen-key stand-in default default never; "
        "gpg --batch --armor --export stand-in >key.asc; "
        'for file in "$@"; do gpg --batch -q --clearsign -o $file.signed $file; done; gpgconf --kill gpg-agent'
    )
    inside = 'mount --bind "$1" "$0/srv"; mount -t proc proc "$0/proc"; mount --rbind /dev "$0/dev"; shift; '
    inside += 'exec chroot "$0" /bin/sh -c "$@"'
    numbers = [str(number) for number in range(len(releases))]
    isolated = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-ec", inside, str(root), str(scratch)]
    subprocess.run([*isolated, sign, "sh", *numbers], check=True, capture_output=True, timeout=_TIME_LIMIT)
    for name, release in zip(numbers, releases, strict=True):
        shutil.copy(scratch / f"{name}.signed", release.with_name("InRelease"))


def write_files(root: Path, files: Mapping[str, str]) -> None:
    """Write files below a root; scripts, which begin with ``#!``, may be executed; a text ``-> PATH`` is a link."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        if text.startswith(LINK):
            path.symlink_to(text.removeprefix(LINK))
            continue
        path.write_text(text, encoding="utf-8")
        path.chmod(0o755 if text.startswith("#!") else 0o644)
