"""User data: valid, short, repeatable, with secrets only where nobody else reads."""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import stat
import subprocess
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from pricing.fabrics import fabrics
from router.agent.config import AgentConfig, AgentConfigError, CodeSource, read_config
from router.agent.preflight import check_boot
from router.agent.starters import read_job_environment
from router.controller.workspace.bootstrap import (
    BOOT_STEP,
    FABRIC_SCRIPTS,
    FETCH_AGENT,
    INSTALL_CONTAINERS,
    MAX_USER_DATA_BYTES,
    MOUNT_NVME,
    Bootstrap,
    CoordinatorEndpoint,
    NodeSecrets,
    UserDataTooLargeError,
    pack_agent,
    render_cloud_init,
)
from tests.support.coordinator import Coordinator
from tests.support.repository import ROOT

GOLDEN = ROOT / "tests" / "golden" / "cloud_init"
COORDINATOR = "https://watch.example.com:8443"
TOKEN, SECRET = "token-canary-8d1b7c", "secret-canary-91ee04"
CONFIG = AgentConfig(
    attempt="attempt-7",
    job="bert",
    rank=0,
    nodes=4,
    command="torchrun train.py --resume latest",
    workdir="",
    coordinator=COORDINATOR,
    token_file="",
    log_folder="",
    spool_folder="",
    processes_per_node=8,
    gpus=True,
)
HOME = CoordinatorEndpoint(COORDINATOR, hashlib.sha256(b"agent").hexdigest())
SPEC = Bootstrap(CONFIG, HOME, NodeSecrets(TOKEN, {"BATCH": "512"}, {"API_KEY": SECRET}))
ARCHIVE = CodeSource("archive", "https://code.example.com/bert.tar.gz", "ab" * 32)
CASES = {
    "torchrun": replace(
        SPEC, config=replace(CONFIG, code=CodeSource("image", "registry.example.com/search/bert:2026.11"))
    ),
    "ray": replace(SPEC, config=replace(CONFIG, engine="ray", code=ARCHIVE, rank=1), local_nvme="/mnt/scratch"),
    "slurm": replace(
        SPEC, config=replace(CONFIG, engine="slurm", code=CodeSource("git", "https://code.example.com/bert.git", "v3"))
    ),
    "install": replace(SPEC, config=replace(CONFIG, code=CodeSource("image", "i:1")), containers=("29.6.2", "1.19.1")),
    "command": replace(
        SPEC,
        config=replace(CONFIG, engine="command", command="set -e\n./train.sh 'ünïcode'"),
        home=replace(HOME, ca="PEM\nTEXT\n"),
    ),
}


def _parsed(text: str) -> tuple[dict[str, dict[str, Any]], list[list[str]]]:
    assert text.startswith("#cloud-config\n")
    content = yaml.safe_load(text)
    assert set(content) == {"write_files", "runcmd"}
    return {file["path"]: file for file in content["write_files"]}, content["runcmd"]


@pytest.mark.parametrize("name", CASES)
def test_golden(name: str) -> None:
    """Rewritten with STEPFARE_WRITE_GOLDEN=1."""
    path = GOLDEN / f"{name}.yaml"
    text = render_cloud_init(CASES[name])
    if os.environ.get("STEPFARE_WRITE_GOLDEN"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", CASES)
def test_an_agent_can_read_what_is_written(name: str, tmp_path: Path) -> None:
    files, _ = _parsed(render_cloud_init(CASES[name]))
    for path in ("/etc/stepfare/agent.json", "/etc/stepfare/token", "/etc/stepfare/env.json"):
        assert files[path]["permissions"] == "0600"
        assert files[path]["owner"] == "root:root"
        (tmp_path / Path(path).name).write_text(files[path]["content"], encoding="utf-8")
    config = read_config(str(tmp_path / "agent.json"))
    asked = CASES[name].config
    assert (config.command, config.engine, config.rank, config.code) == (
        asked.command,
        asked.engine,
        asked.rank,
        asked.code,
    )
    assert config.token_file == "/etc/stepfare/token"
    given = read_job_environment(str(tmp_path / "env.json"))
    assert (given.plain, given.secret) == ({"BATCH": "512"}, {"API_KEY": SECRET})
    assert (tmp_path / "token").read_text() == f"{TOKEN}\n"


@pytest.mark.parametrize("name", CASES)
def test_secrets_lie_in_private_files_alone(name: str) -> None:
    files, commands = _parsed(render_cloud_init(CASES[name]))
    for secret, home in ((TOKEN, "/etc/stepfare/token"), (SECRET, "/etc/stepfare/env.json")):
        assert [path for path, file in files.items() if secret in file["content"]] == [home]
        assert secret not in str(commands)
        assert secret not in repr(CASES[name])


@pytest.mark.parametrize("name", CASES)
def test_it_leaves_room(name: str) -> None:
    assert len(render_cloud_init(CASES[name]).encode()) < MAX_USER_DATA_BYTES // 3


def test_the_same_spec_gives_the_same_text() -> None:
    assert len({render_cloud_init(CASES["ray"]) for _ in range(3)}) == 1


def test_what_is_too_large_is_refused_with_a_way_out() -> None:
    with pytest.raises(UserDataTooLargeError, match="shorten the command and the environment"):
        render_cloud_init(replace(SPEC, secrets=NodeSecrets(TOKEN, {"BLOB": "x" * MAX_USER_DATA_BYTES})))
    with pytest.raises(AgentConfigError, match="rank: not below nodes"):
        render_cloud_init(replace(SPEC, config=replace(CONFIG, rank=4)))


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd here")
@pytest.mark.parametrize("name", CASES)
def test_systemd_takes_the_unit(name: str, tmp_path: Path) -> None:
    files, _ = _parsed(render_cloud_init(CASES[name]))
    unit = tmp_path / "stepfare-agent.service"
    unit.write_text(files["/etc/systemd/system/stepfare-agent.service"]["content"])
    checked = subprocess.run(["systemd-analyze", "verify", "--man=no", unit], capture_output=True, text=True)
    said = [line for line in checked.stderr.splitlines() if "stepfare" in line]
    assert said == []


def test_the_agent_is_fetched_from_the_coordinator_and_checked(tmp_path: Path) -> None:
    agent = pack_agent()
    script = _script(tmp_path, "fetch", FETCH_AGENT)
    target = tmp_path / "agent.pyz"
    with Coordinator(1, TOKEN, agent=agent).running() as coordinator:
        at = CoordinatorEndpoint(coordinator.url, hashlib.sha256(agent).hexdigest())
        ran = subprocess.run([script, at.agent_url, "0" * 64, target, "0"], capture_output=True, text=True)
        assert (ran.returncode, ran.stderr) == (1, "stepfare: not the agent that was named\n")
        assert not target.exists()
        subprocess.run([script, at.agent_url, at.agent_sha256, target, "0"], check=True, capture_output=True)
        away = subprocess.run(
            [script, f"{at.agent_url}0", at.agent_sha256, target, "0"], capture_output=True, text=True
        )
    assert (away.returncode, away.stderr.splitlines()[-1]) == (1, f"stepfare: no agent at {at.agent_url}0 within 0 s")
    assert target.read_bytes() == agent
    assert stat.S_IMODE(target.stat().st_mode) == 0o755
    assert subprocess.run([target], capture_output=True, text=True).stderr == "usage: agent.pyz CONFIG.json\n"


@pytest.mark.parametrize(
    ("disks", "mdadm", "called"),
    [
        (["nvme-Amazon_EC2_NVMe_Instance_Storage_AWS1"], True, ["mkfs.ext4 -q -E nodiscard -m 0 D0", "mount D0"]),
        (
            ["google-local-nvme-ssd-0", "google-local-nvme-ssd-1", "google-local-nvme-ssd-0-part1", "nvme-other"],
            True,
            ["mdadm D0 D1", "mkfs.ext4 -q -E nodiscard -m 0 /dev/md/stepfare", "mount /dev/md/stepfare"],
        ),
        (
            ["google-local-nvme-ssd-0", "google-local-nvme-ssd-1"],
            False,
            ["mkfs.ext4 -q -E nodiscard -m 0 D0", "mount D0"],
        ),
        (["google-local-nvme-ssd-used"], True, []),
        ([], True, []),
    ],
)
def test_local_disks_are_mounted_where_they_are_unused(
    tmp_path: Path, disks: list[str], mdadm: bool, called: list[str]
) -> None:
    """With stand-ins for the tools that would format a disk."""
    (tmp_path / "by-id").mkdir()
    for number, name in enumerate(disks):
        (tmp_path / f"D{number}").touch()
        (tmp_path / "by-id" / name).symlink_to(tmp_path / f"D{number}")
    used = "x" if "google-local-nvme-ssd-used" in disks else ""
    note = f'#!/bin/sh\necho "{{}}" | sed s,{tmp_path}/,,g >> {tmp_path}/calls\n'
    tools = {
        "blkid": f"#!/bin/sh\n[ -n '{used}' ] && echo $2: TYPE=x || exit 2\n",
        "mountpoint": "#!/bin/sh\nexit 1\n",
        "mkfs.ext4": note.format("mkfs.ext4 $*"),
        "mount": note.format("mount $3"),
        **({"mdadm": note.format("mdadm $6 $7")} if mdadm else {}),
    }
    (tmp_path / "bin").mkdir()
    for name, text in tools.items():
        _script(tmp_path / "bin", name, text)
    for name in ("sh", "mkdir", "readlink", "sort", "tr", "sed"):
        (tmp_path / "bin" / name).symlink_to(str(shutil.which(name)))
    script = _script(tmp_path, "mount-nvme", MOUNT_NVME)
    ran = subprocess.run(
        [script, tmp_path / "scratch", tmp_path / "by-id"],
        env={"PATH": str(tmp_path / "bin")},
        capture_output=True,
        text=True,
    )
    assert ran.returncode == (1 if used else 0), ran.stderr
    calls = (tmp_path / "calls").read_text().splitlines() if (tmp_path / "calls").exists() else []
    assert calls == called
    assert (tmp_path / "scratch").is_dir()
    assert ("lies on the boot disk" in ran.stderr) == (not called)
    assert ("disks are taken" in ran.stderr, "D0: TYPE=x" in ran.stderr) == (bool(used), bool(used))


@pytest.mark.parametrize("comes", [True, False])
def test_the_volume_that_an_image_makes_of_the_disks_is_waited_for(tmp_path: Path, comes: bool) -> None:
    """With stand-ins for systemd and what mounts; the volume is there at the third look, or never."""
    (tmp_path / "by-id").mkdir()
    (tmp_path / "D0").touch()
    (tmp_path / "by-id" / "nvme-Amazon_EC2_NVMe_Instance_Storage_AWS1").symlink_to(tmp_path / "D0")
    (tmp_path / "bin").mkdir()
    looks = f"echo look >>{tmp_path}/looks; [ $(wc -l <{tmp_path}/looks) -gt 3 ]" if comes else "exit 1"
    tools = {
        "systemctl": '[ "$*" = "is-enabled --quiet dlami-nvme.service" ]',
        "mountpoint": f'[ "$2" = /opt/dlami/nvme ] && {{ {looks}; }}',
        "mount": f"echo $* >{tmp_path}/mounted",
        "sleep": "",
    }
    for name, line in tools.items():
        _script(tmp_path / "bin", name, f"#!/bin/sh\n{line}\n")
    for name in ("sh", "mkdir", "readlink", "sort", "wc"):
        (tmp_path / "bin" / name).symlink_to(str(shutil.which(name)))
    script = _script(tmp_path, "mount-nvme", MOUNT_NVME)
    command = [script, tmp_path / "scratch", tmp_path / "by-id"]
    ran = subprocess.run(command, env={"PATH": str(tmp_path / "bin")}, capture_output=True, text=True)
    if comes:
        assert (ran.returncode, ran.stderr) == (0, "")
        assert (tmp_path / "mounted").read_text() == f"--bind /opt/dlami/nvme {tmp_path}/scratch\n"
    else:
        assert (ran.returncode, ran.stderr) == (
            *(1, "stepfare: dlami-nvme.service mounts nothing at /opt/dlami/nvme\n"),
        )
        assert not (tmp_path / "mounted").exists()


def test_what_a_failed_step_said_last_is_kept_for_the_agent(tmp_path: Path) -> None:
    kept, text = tmp_path / "boot-problems", BOOT_STEP
    for place in ("/var/log/stepfare", "/run"):
        assert place in text
        text = text.replace(place, str(tmp_path))
    step = _script(tmp_path, "boot-step", text)
    fails = _script(tmp_path, "fails.sh", "#!/bin/sh\nseq 9\necho worse >&2\nexit 3\n")
    for command, said in ((["echo", "well"], "well\n"), ([fails], "".join(f"{n}\n" for n in range(1, 10)) + "worse\n")):
        assert subprocess.run([step, *command], capture_output=True, text=True).stdout == said
    assert kept.read_text() == "fails.sh ended with 3:\n6\n7\n8\n9\nworse\n"
    assert check_boot(tmp_path).problem == "fails.sh ended with 3: 6 7 8 9 worse"
    assert check_boot(tmp_path / "elsewhere").problem == ""


@pytest.mark.parametrize("present", [(), ("docker",), ("docker", "nvidia-ctk")])
def test_a_machine_without_docker_installs_it_with_the_toolkit(tmp_path: Path, present: tuple[str, ...]) -> None:
    """With stand-ins for what downloads and installs; their first calls fail, as on a machine that just began."""
    (tmp_path / "bin").mkdir()
    note = f'#!/bin/sh\necho "$(basename $0) $*" >> {tmp_path}/calls\n'
    once = f"[ -e {tmp_path}/again-$(basename $0) ] || {{ touch {tmp_path}/again-$(basename $0); exit 1; }}\n"
    tools = {
        **dict.fromkeys(present, note),
        "curl": note + once,
        "apt-get": note + once + f"case $* in *install*) cp {tmp_path}/bin/sleep {tmp_path}/bin/nvidia-ctk;; esac\n",
        **dict.fromkeys(("systemctl", "sleep", "chmod"), note),
    }
    for name, text in tools.items():
        _script(tmp_path / "bin", name, text)
    for name in ("sh", "mkdir", "cp", "touch", "basename"):
        (tmp_path / "bin" / name).symlink_to(str(shutil.which(name)))
    (tmp_path / "os-release").write_text('VERSION_ID="24.04"\nVERSION_CODENAME=noble\n')
    (tmp_path / "apt" / "sources.list.d").mkdir(parents=True)
    script = _script(tmp_path, "install-containers", INSTALL_CONTAINERS.replace("/etc/", f"{tmp_path}/"))
    ran = subprocess.run(
        [script, "29.6.2", "1.19.1"], env={"PATH": str(tmp_path / "bin")}, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr
    calls = (tmp_path / "calls").read_text().splitlines() if (tmp_path / "calls").exists() else []
    if len(present) == 2:
        assert calls == []
        return
    assert [tool for call in calls if (tool := call.split()[0]) != "chmod"] == [
        *("curl", "sleep", "curl", "curl", "apt-get", "sleep", "apt-get", "apt-get", "nvidia-ctk", "systemctl")
    ]
    (install,) = (call.split() for call in calls if " install " in call)
    docker, toolkit = "5:29.6.2-1~ubuntu.24.04~noble", "1.19.1-1"
    assert {f"docker-ce={docker}", f"docker-ce-cli={docker}", f"nvidia-container-toolkit={toolkit}"} <= {*install}
    keys, lists = tmp_path / "apt" / "keyrings", tmp_path / "apt" / "sources.list.d"
    assert (lists / "stepfare-docker.list").read_text() == (
        f"deb [signed-by={keys}/docker.asc] https://download.docker.com/linux/ubuntu noble stable\n"
    )
    assert (lists / "stepfare-nvidia.list").read_text() == (
        f"deb [signed-by={keys}/nvidia.asc] https://nvidia.github.io/libnvidia-container/stable/deb/$(ARCH) /\n"
    )


@pytest.mark.parametrize("loaded", [True, False])
def test_tcpxo_is_set_up_with_the_module_the_plugin_and_the_daemon_in_that_order(tmp_path: Path, loaded: bool) -> None:
    """With stand-ins, and the devices of a machine in a folder. The patch is for kernels from 6.13 on."""
    (tmp_path / "bin").mkdir()
    note = f'#!/bin/sh\necho "$(basename $0) $*" >> {tmp_path}/calls\n'
    ready = 'case $1 in logs) echo "Buffer manager initialization completed";; esac\n'
    source = tmp_path / "usr-src" / "dmabuf-import-helper-1.1" / "import-helper.c"
    tools = {
        "docker": note + ready,
        "modprobe": note + ("" if loaded else f"[ -e {source} ]\n"),
        "apt-get": note + "case $* in *download*) touch one.deb;; esac\n",
        "dpkg-deb": note
        + "mkdir -p usr/src/dmabuf-import-helper-1.1\n"
        + 'echo "MODULE_IMPORT_NS(DMA_BUF);" >usr/src/dmabuf-import-helper-1.1/import-helper.c\n',
        "uname": "#!/bin/sh\necho 6.17.0-1004-gcp\n",
        **dict.fromkeys(("curl", "dkms", "mount", "sleep"), note),
        "mountpoint": "#!/bin/sh\nexit 1\n",
    }
    for name, text in tools.items():
        _script(tmp_path / "bin", name, text)
    device = tmp_path / "devices" / "0000:06:00.1"
    other = tmp_path / "devices" / "0000:00:01.0"
    for folder, vendor in ((device, "0x1ae0"), (other, "0x8086")):
        folder.mkdir(parents=True)
        (folder / "vendor").write_text(f"{vendor}\n")
        (folder / "device").write_text("0x0084\n")
    bound = tmp_path / "aperture" / "0000:06:00.1"
    bound.mkdir(parents=True)
    (bound / "resource0").touch()
    for each in ("usr-src", "etc/apt/sources.list.d"):
        (tmp_path / each).mkdir(parents=True)
    text = FABRIC_SCRIPTS["setup-tcpxo.sh"]
    for path, mine in (
        ("/sys/bus/pci/devices", "devices"), ("/dev/aperture_devices", "aperture"), ("/etc/apt", "etc/apt"),
        ("/run/stepfare", "run"), (" /usr/src/", " usr-src/"),
    ):  # fmt: skip
        assert path in text
        text = text.replace(path, f"{' ' if path[0] == ' ' else ''}{tmp_path}/{mine.strip()}")
    script = _script(tmp_path, "setup-tcpxo", text)
    environment = {"PATH": f"{tmp_path}/bin:{os.environ['PATH']}"}
    ran = subprocess.run([script, "plugin:v1", "daemon:v2"], env=environment, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    calls = (tmp_path / "calls").read_text().splitlines()
    assert [call for call in calls if call.startswith("mount ")] == [f"mount --bind {device} {bound}"]
    assert stat.S_IMODE((bound / "resource0").stat().st_mode) == 0o666
    runs = [call for call in calls if call.startswith("docker run")]
    assert [("plugin:v1 install --install-nccl" in run, "daemon:v2 --num_hops=2" in run) for run in runs] == [
        (True, False), (False, True),
    ]  # fmt: skip
    assert (tmp_path / "run" / "tcpxo-ready").exists()
    assert [call for call in calls if call.startswith("dkms")] == (
        [] if loaded else ["dkms install -m dmabuf-import-helper -v 1.1"]
    )
    if not loaded:
        assert source.read_text() == 'MODULE_IMPORT_NS("DMA_BUF");\n'
        assert calls.count("modprobe import-helper") == 2


@pytest.mark.parametrize("name", FABRIC_SCRIPTS)
def test_user_data_that_sets_up_a_fabric_fits(name: str) -> None:
    setup = next(row.setup for row in fabrics() if row.setup and row.setup.startswith(name))
    spec = replace(
        CASES["install"], fabric_setup=setup, local_nvme="/mnt/scratch", home=replace(HOME, ca="PEM\n" * 400)
    )
    assert len(render_cloud_init(spec).encode()) < MAX_USER_DATA_BYTES - 3000  # for the job


def test_the_zipapp_is_the_same_bytes_and_its_lines_are_those_of_the_source() -> None:
    assert pack_agent() == pack_agent()
    packed = zipfile.ZipFile(io.BytesIO(pack_agent()))
    assert {entry.date_time for entry in packed.infolist()} == {(1980, 1, 1, 0, 0, 0)}
    source = (ROOT / "router" / "agent" / "node.py").read_text().splitlines()
    bare = packed.read("router/agent/node.py").decode().splitlines()
    assert len(source) == len(bare)
    line = next(number for number, text in enumerate(source) if text.startswith("class RankAgent"))
    assert bare[line] == source[line]


def _script(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text)
    path.chmod(0o755)
    return path
