"""Machines of Debian on this one: systemd and cloud-init of a real root, in namespaces of their own.

A machine has the shared root below a layer of its own, and starts with user data as a new machine of a cloud does.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.busy import in_time, on_a_busy_machine
from tests.support.debian_root import DebianRoot, write_files
from tests.support.machine_network import MachineNetwork

# START FOLDER HOSTNAME FULL DISKS...: FULL is a folder on a disk that is full, "" for none. A disk is ID=DEVICE.
_START = """\
set -e
folder=$1 name=$2 full=$3 root=$1/root
shift 3
mkdir -p "$folder/work" "$root"
mount -t overlay overlay -o "lowerdir=$LOWER,upperdir=$folder/layer,workdir=$folder/work" "$root"
mount -t proc proc "$root/proc"
mount -t sysfs -o ro sysfs "$root/sys"
mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
mount --bind "$root/proc/sys" "$root/proc/sys"
mount -o remount,ro,bind "$root/proc/sys"
mount -t tmpfs -o mode=755 run "$root/run"
mount -t tmpfs -o mode=755 dev "$root/dev"
for device in null zero full random urandom tty; do
  touch "$root/dev/$device"; mount --bind "/dev/$device" "$root/dev/$device"
done
touch "$folder/console" "$root/dev/console"
mount --bind "$folder/console" "$root/dev/console"
ln -s /proc/self/fd "$root/dev/fd"
ln -s pts/ptmx "$root/dev/ptmx"
mkdir -p "$root/dev/pts" "$root/dev/shm" "$root/dev/disk/by-id"
mount -t devpts devpts "$root/dev/pts" -o newinstance,ptmxmode=0666
mount -t tmpfs shm "$root/dev/shm"
for disk; do
  device=${disk#*=}
  [ -e "$root$device" ] || { touch "$root$device"; mount --bind "$device" "$root$device"; }
  [ -z "${disk%%=*}" ] || ln -s "$device" "$root/dev/disk/by-id/${disk%%=*}"
done
for device in $DEVICES; do
  mkdir -p "$root${device%/*}"
  touch "$root$device"
done
if [ -n "$full" ]; then
  mkdir -p "$root$full"
  mount -t tmpfs -o size=64k,mode=755 small "$root$full"
  head -c 1M /dev/zero >"$root$full/everything" 2>/dev/null || true
fi
hostname "$name"
exec env -i container=stand-in PATH=/usr/sbin:/usr/bin:/sbin:/bin chroot "$root" /lib/systemd/systemd \\
  --show-status=false systemd.unit=multi-user.target
"""


_MOST_TOLD = 4000
# Of files with holes: more than a machine must have left.
_DISK_BYTES = 4 * 2**30


@dataclass(frozen=True)
class MachineDisk:
    """A local disk. ``name``: by which /dev/disk/by-id knows it, "" for none. ``content``: ext4 or LVM2 or ""."""

    name: str = ""
    content: str = ""


@dataclass
class DebianMachine:
    """One machine, off until :meth:`boot`; ``folder`` is its own. What it writes lies in ``layer``.

    ``full``: a folder whose disk is full. ``devices``: names in its /dev with nothing behind them.
    """

    root: DebianRoot
    folder: Path
    network: MachineNetwork
    files: Mapping[str, str] = field(default_factory=dict)
    disks: Sequence[MachineDisk] = ()
    full: str = ""
    devices: Sequence[str] = ()
    block_devices: list[str] = field(default_factory=list)
    _process: subprocess.Popen[bytes] | None = None
    _ends: ExitStack = field(default_factory=ExitStack)

    @property
    def layer(self) -> Path:
        """The folder of its files that differ from the shared root's."""
        return self.folder / "layer"

    def boot(self, user_data: str) -> None:
        """Switch it on, with its user data where cloud-init looks for it."""
        name = self.folder.name
        seed = {"meta-data": f"instance-id: i-{name}\nlocal-hostname: {name}\n", "user-data": user_data}
        self.layer.mkdir(mode=0o755, parents=True)
        write_files(self.layer, {**self.root.settings(), **self.files})
        write_files(self.layer, {f"var/lib/cloud/seed/nocloud/{file}": text for file, text in seed.items()})
        for number, disk in enumerate(self.disks):
            self.block_devices.append(
                self._ends.enter_context(_loop_device(self.folder / f"disk-{number}", disk.content))
            )
        write_files(self.layer, {"etc/stand-in/volume": f"{self.block_devices[-1]}\n" if self.block_devices else ""})
        disks = [f"{disk.name}={device}" for disk, device in zip(self.disks, self.block_devices, strict=True)]
        group = self._ends.enter_context(_control_group(f"stepfare-{os.getpid()}-{name}"))
        join = 'echo $$ >"$0/cgroup.procs"; exec "$@"'
        isolated = ["unshare", "--mount", "--pid", "--fork", "--uts", "--ipc", "--cgroup", "--kill-child"]
        start = ["sh", "-c", _START, "start", str(self.folder), name, self.full, *disks]
        inside = ["nsenter", f"--net=/proc/self/fd/{self.network.descriptor}", "--", *isolated, "--", *start]
        with (self.folder / "started").open("wb") as out:
            self._process = subprocess.Popen(
                ["sh", "-c", join, str(group), *inside],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                env={**os.environ, "LOWER": str(self.root.files), "DEVICES": " ".join(self.devices)},
                pass_fds=[self.network.descriptor],
                start_new_session=True,
            )

    @property
    def is_on(self) -> bool:
        """Whether it runs."""
        return self._process is not None and self._process.poll() is None

    @property
    def powered_off(self) -> bool:
        """Whether it switched itself off: the kernel then ends whoever started it with SIGINT (reboot(2))."""
        return self._process is not None and self._process.poll() in (-signal.SIGINT, 128 + signal.SIGINT)

    def wait_off(self, seconds: float) -> None:
        """Wait until it is off; fails the test otherwise."""
        assert self._process is not None
        try:
            self._process.wait(on_a_busy_machine(seconds))
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still on after {seconds} s\n{self.describe()}") from None

    def wait_for(self, path: str, text: str, seconds: float = 60) -> None:
        """Wait until a file holds the text; fails the test otherwise."""
        began = time.monotonic()
        while text not in self.read(path):
            assert in_time(began, seconds), f"no {text!r} in {path}\n{self.describe()}"
            time.sleep(0.05)

    def read(self, path: str) -> str:
        """Return a file that it wrote, "" where there is none; not of folders of its memory, such as /run."""
        with suppress(FileNotFoundError, NotADirectoryError):
            return (self.layer / path.lstrip("/")).read_text(errors="replace")
        return ""

    def describe(self) -> str:
        """Return what was said while it started and since, for whoever reads a failure."""
        logs = ("var/log/cloud-init-output.log", "var/log/stepfare/agent.log", "var/log/stepfare/train.log")
        texts = [(self.folder / "started").read_text(errors="replace"), *(self.read(log) for log in logs)]
        journal = ["journalctl", f"--directory={self.layer / 'var/log/journal'}", "--no-pager", "-n", "60", "-o", "cat"]
        with suppress(OSError):
            texts.append(subprocess.run(journal, capture_output=True, text=True).stdout)
        return "\n----\n".join(text[-_MOST_TOLD:] for text in texts)

    def end(self) -> None:
        """Switch it off at once, as a cloud deletes a machine, and free what it had."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(30)
        self._ends.close()


@contextmanager
def _control_group(name: str) -> Iterator[Path]:
    """Make a control group of that name below this process's own, and remove it at the end."""
    lines = Path("/proc/self/mounts").read_text().splitlines()
    place = next(Path(line.split()[1]) for line in lines if line.split()[2] == "cgroup2")
    own = re.search(r"^0::(.*)$", Path("/proc/self/cgroup").read_text(), re.MULTILINE)
    assert own is not None
    group = place / own[1].lstrip("/") / name
    group.mkdir()
    try:
        yield group
    finally:
        began = time.monotonic()
        while group.exists():
            for folder in sorted(group.rglob("*/"), reverse=True):
                with suppress(OSError):
                    folder.rmdir()
            with suppress(OSError):
                group.rmdir()
            # The processes of a namespace that ended go one by one.
            assert in_time(began, 30), f"{group} does not get empty"
            time.sleep(0.01)


@contextmanager
def _loop_device(file: Path, content: str) -> Iterator[str]:
    """Make a block device of a file, and free it at the end."""
    with file.open("wb") as out:
        out.truncate(_DISK_BYTES)
        if content == "LVM2":
            # The label of a physical volume in its second sector, with its sum over all that follows the sum.
            label = ((32).to_bytes(4, "little") + b"LVM2 001").ljust(492, b"\0")
            total = zlib.crc32(label, 0xF597A6CF ^ 0xFFFFFFFF) ^ 0xFFFFFFFF
            out.seek(512)
            out.write(b"LABELONE" + (1).to_bytes(8, "little") + total.to_bytes(4, "little") + label)
    if content == "ext4":
        subprocess.run(["mkfs.ext4", "-q", "-F", file], check=True, capture_output=True)
    attach = subprocess.run(["losetup", "--find", "--show", file], check=True, capture_output=True, text=True)
    try:
        yield attach.stdout.strip()
    finally:
        subprocess.run(["losetup", "--detach", attach.stdout.strip()], check=True, capture_output=True)
        file.unlink()
