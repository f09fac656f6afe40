"""New machines of each kind of image boot to their end: user data by cloud-init, under systemd, in a root of Debian.

Stand-ins are the driver's tools, disks, metadata, Docker and its registry, and the archives that packages come from.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pricing.machine_images import PRESENT, MachineImage
from pricing.table_rows import parse_rows, read_table
from router.agent import protocol
from router.controller.provision.provision_order import ProvisionStatus
from router.faults.fault import FaultKind
from router.state.records import Phase
from tests.support.booted_gangs import BootCase, BootedGang, booting
from tests.support.debian_machine import MachineDisk

pytestmark = pytest.mark.slow

H100, SCRATCH = "NVIDIA H100 80GB HBM3", "/mnt/scratch"
GOOGLE_DISKS = (MachineDisk("google-local-nvme-ssd-0"), MachineDisk("google-local-nvme-ssd-1"))
AZURE_DISK = (MachineDisk("nvme-Microsoft_NVMe_Direct_Disk_1"),)
# The disk that the Deep Learning AMI makes a volume of, and that volume.
AMAZON_DISKS = (MachineDisk("nvme-Amazon_EC2_NVMe_Instance_Storage_AWS1", "LVM2"), MachineDisk("", "ext4"))
CASES = {
    "aws": BootCase("aws", "p5.48xlarge", "H100", 8, H100, AMAZON_DISKS, SCRATCH),
    "gcp": BootCase("gcp", "a2-highgpu-1g", "A100-40GB", 1, "NVIDIA A100-SXM4-40GB"),
    "gcp-disks": BootCase("gcp", "a3-megagpu-8g", "H100", 8, H100, GOOGLE_DISKS, SCRATCH),
    "azure-disks": BootCase("azure", "Standard_ND96isr_H100_v5", "H100", 8, H100, AZURE_DISK, SCRATCH),
    "azure": BootCase(
        "azure", "Standard_ND40rs_v2", "V100-32GB", 8, "Tesla V100-SXM2-32GB", (MachineDisk("", "ext4"),), "/mnt"
    ),
    "azure-amd": BootCase("azure", "Standard_ND96isr_MI300X_v5", "MI300X", 8, "", AZURE_DISK, SCRATCH),
}
# What the disk of a test has at most, in GiB; the root's own has more.
DISK_GIB = 4
# A script that waits 5 s between two tries needs not wait so long here.
HASTE = {"usr/local/sbin/sleep": "#!/bin/sh\nexec /bin/sleep 0.05\n"}


def _differences(image: MachineImage) -> tuple[object, ...]:
    """Return what makes a difference to how a machine boots; the processor makes none (see below)."""
    installs = image.container_runtime, image.toolkit
    return image.cloud, tuple(one == PRESENT for one in installs), image.installs, image.vendor, image.local_disks


def test_each_row_of_the_table_that_differs_is_booted_here() -> None:
    rows = {_differences(image) for image in parse_rows(MachineImage, read_table("images")) if image.image is not None}
    assert rows == {_differences(case.image) for case in CASES.values()}


@pytest.mark.parametrize("name", CASES)
def test_a_new_machine_reaches_its_training(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    with booting(tmp_path, case) as gang:
        result = gang.provision()
        assert result.result is ProvisionStatus.READY, f"{result.message}\n{gang.machine.describe()}"
        assert gang.wait_result() == protocol.FINISHED, gang.machine.describe()
        machine = gang.machine
        assert machine.read("/var/log/stepfare/train.log").endswith("rank 0 of 1 trained\n")
        checks = gang.checks()
        assert [*checks] == ["gpus", "containers", "disk", "clock"]
        assert {check: problem for check, (problem, _) in checks.items() if problem} == {}, machine.describe()
        free = re.match(r"(\d+) GiB free", checks["disk"][1])
        assert free is not None
        assert (int(free[1]) <= DISK_GIB) == bool(case.disks), "the work lies on the machine's own disks"
        assert machine.read("/var/log/stand-in-mdadm").split() == (
            machine.block_devices if case.disks == GOOGLE_DISKS else []
        )
        hosts = {asked.partition("/")[0] for asked in gang.servers.asked}
        vendors = {"download.docker.com", "nvidia.github.io"} if case.cloud == "gcp" else set()
        assert hosts == {"registry.example.com", *vendors}
        assert gang.metadata.machine.asked, "the agent asks the cloud for notices"
        assert (machine.layer / "etc/systemd/system/timers.target.wants/stepfare-lifetime.timer").is_symlink()
        assert (machine.layer / "etc/stepfare/token").stat().st_mode & 0o777 == 0o600
        # One script serves both: apt takes the packages of its own processor.
        assert not re.search("amd64|x86_64|arm64|aarch64", gang.spec.user_data[0])
        assert gang.release().phase is Phase.FINISHED
        assert not machine.is_on


def _given_back(gang: BootedGang, fault: FaultKind, *causes: str, rank: int = 0) -> str:
    """Provision a gang that cannot run, and return the last message of the rank at fault.

    Each cause is in what the controller tells; the gang is over, and its machines are gone.
    """
    result = gang.provision()
    described = f"{result.message}\n{gang.machine.describe()}"
    assert (result.result, result.fault and result.fault.kind) == (ProvisionStatus.FAILED, fault), described
    for cause in causes:
        assert cause in result.message, described
    assert gang.now.phase is Phase.FAILED
    assert gang.now.message == result.message
    assert not any(machine.is_on for machine in gang.runner.machines)
    assert any(result.message in told for told in gang.told)
    return gang.site.store.attempts.nodes(gang.attempt.id)[rank].ended_message


def test_no_docker_and_none_to_be_installed(tmp_path: Path) -> None:
    with booting(tmp_path, CASES["gcp"], files={0: HASTE}, refused={"download.docker.com": 503}) as gang:
        said = _given_back(gang, FaultKind.MACHINE_FAULT, "unfit", "install-containers.sh ended with 1", "no docker")
        # Its last lines: of curl, then of the script.
        assert "The requested URL returned error: 503" in said
        assert "stepfare: no container runtime: curl" in said
        assert "stepfare: docker: No such file or directory" in said


DRIVERS: dict[str, tuple[str, Mapping[str, Any], str]] = {
    "nvidia not loaded": (
        "azure-disks", {"files": {0: {"etc/stand-in/gpus": None}}}, "couldn't communicate with the NVIDIA driver"
    ),
    "nvidia not installed": (
        "aws", {"files": {0: {"usr/bin/nvidia-smi": None}}}, "no nvidia-smi: the driver is missing"
    ),
    "amd": ("azure-amd", {"devices": ()}, "no /dev/kfd: the driver is missing"),
}  # fmt: skip


@pytest.mark.parametrize("driver", DRIVERS)
def test_the_driver_is_missing(driver: str, tmp_path: Path) -> None:
    name, missing, cause = DRIVERS[driver]
    case = replace(CASES[name], nvme=None, disks=())
    with booting(tmp_path, case, preflight="require", **missing) as gang:
        assert cause in _given_back(gang, FaultKind.MACHINE_FAULT, "unfit gpus: ", cause)


def test_one_machine_of_two_has_an_accelerator_too_few(tmp_path: Path) -> None:
    case = replace(CASES["azure-disks"], nvme=None, disks=())
    seven = {"etc/stand-in/gpus": f"{H100}, 580.126.16\n" * 7}
    with booting(tmp_path, case, machines=2, files={1: seven}, preflight="require") as gang:
        cause = "rank 1: unfit gpus: 7 of 8 accelerators are there"
        assert "7 of 8" in _given_back(gang, FaultKind.MACHINE_FAULT, cause, rank=1)
        assert len(gang.runner.machines) == 2


def test_the_disks_are_taken(tmp_path: Path) -> None:
    used = tuple(replace(disk, content="ext4") for disk in GOOGLE_DISKS)
    with booting(tmp_path, replace(CASES["gcp-disks"], disks=used), preflight="require") as gang:
        said = _given_back(
            gang, FaultKind.MACHINE_FAULT, "unfit boot: mount-nvme.sh ended with 1", "the local NVMe disks are taken"
        )
        for device in gang.machine.block_devices:
            assert f"{device}: " in said


def test_the_volume_of_the_image_does_not_come(tmp_path: Path) -> None:
    late = {"opt/aws/dlami/bin/nvme_ephemeral_drives.sh": "#!/bin/sh\nexit 1\n", **HASTE}
    with booting(tmp_path, CASES["aws"], files={0: late}, preflight="require") as gang:
        _given_back(
            gang, FaultKind.MACHINE_FAULT, "unfit boot: ", "dlami-nvme.service mounts nothing at /opt/dlami/nvme"
        )


def test_the_disk_is_full(tmp_path: Path) -> None:
    with booting(tmp_path, replace(CASES["azure"], disks=()), full="/mnt", preflight="require") as gang:
        _given_back(gang, FaultKind.MACHINE_FAULT, "unfit disk: /mnt/work: No space left on device")


def test_the_folder_of_the_agent_is_full(tmp_path: Path) -> None:
    case = replace(CASES["azure"], nvme=None, disks=())
    with booting(tmp_path, case, full="/var/lib/stepfare") as gang:
        _given_back(gang, FaultKind.MACHINE_FAULT, "No space left on device")


def test_the_registry_refuses_the_image(tmp_path: Path) -> None:
    case = replace(CASES["azure"], nvme=None, disks=())
    with booting(tmp_path, case, refused={"registry.example.com": 403}) as gang:
        said = _given_back(gang, FaultKind.CREDENTIALS, "no_code", "denied: requested access to the resource is denied")
        assert "stepfare: docker pull ended with 1" in said


def test_a_machine_that_finds_no_coordinator_switches_itself_off(tmp_path: Path) -> None:
    case = replace(CASES["azure"], nvme=None, disks=())
    times: dict[str, Any] = {"lifetime": {"unheard": "3s"}, "timeouts": {"rendezvous": "2s"}}
    with booting(tmp_path, case, **times) as gang:
        gang.coordinator.__exit__()
        gang.runner.waits_until_off = True
        _given_back(gang, FaultKind.MACHINE_FAULT, "rank 0 did not call within 2 s")
        log = gang.machine.read("/var/log/cloud-init-output.log")
        assert f"stepfare: no agent at {gang.coordinator.url}/v1/agents/" in log
        assert "within 3 s" in log
        assert gang.machine.powered_off


def test_a_machine_whose_coordinator_is_gone_after_the_training_switches_itself_off(tmp_path: Path) -> None:
    case = replace(CASES["azure"], nvme=None, disks=())
    with booting(tmp_path, case, lifetime={"unheard": "12s"}) as gang:
        assert gang.provision().result is ProvisionStatus.READY
        assert gang.wait_result() == protocol.FINISHED
        gang.coordinator.__exit__()
        gang.machine.wait_off(60)
        assert gang.machine.powered_off
        assert "the machine ends: no coordinator answered" in gang.machine.read("/var/log/stepfare/agent.log")
