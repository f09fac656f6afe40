"""New machines of each kind of image boot to their end: user data by cloud-init, under systemd, in a root of Debian.

The real controller renders, boots, waits for and gives back a gang; in the place of Terraform a runner boots a machine
for each user data. Stand-ins are the driver's tools, disks, metadata, Docker and its registry, and the archives that
packages come from.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pricing.machine_images import PRESENT, MachineImage, find_machine_image
from pricing.money import UsdPerHour
from pricing.places import Market
from pricing.table_rows import parse_rows, read_table
from router.agent import protocol
from router.controller.context import ControllerContext
from router.controller.plans import Order
from router.controller.provision.provision_order import ProvisionResult, ProvisionStatus, _provision
from router.controller.release.release import release
from router.controller.workspace.bootstrap import CoordinatorEndpoint, NodeSecrets, pack_agent
from router.controller.workspace.placement_options import GangPlacement
from router.controller.workspace.workspaces import attempt_name, build_workspace, new_attempt
from router.coordinator.app import make_app
from router.coordinator.handlers import AgentMessageHandler
from router.coordinator.server import CoordinatorServer
from router.deploy.deploy_settings import Deploy
from router.faults.fault import FaultKind
from router.state.records import Attempt, NodeRecord, Phase
from terraform.events import TerraformEvent
from terraform.render import SECRETS
from terraform.runner import ApplyResult, Preview
from tests.support.bare_site import bare_site
from tests.support.busy import in_time, on_a_busy_machine
from tests.support.certificates import write_certificate
from tests.support.coordinations import real_clock
from tests.support.debian_machine import DebianMachine, MachineDisk
from tests.support.debian_root import RELEASES, TOOLS, DebianRoot, debian_root, docker_files
from tests.support.machine_network import LINK_LOCAL, MachineNetwork, VendorServers
from tests.support.metadata_service import MetadataService
from tests.support.scenes import a_job

# A machine is up in a few seconds.
RENDEZVOUS_SECONDS = 45
TOKEN = "token-canary-77b0c1"
IMAGE = "registry.example.com/team/train:1"
COMMAND = 'echo "rank $NODE_RANK of $NNODES trained"; test -d "$STEPFARE_CONTROL"'
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"


@dataclass(frozen=True)
class BootCase:
    """A machine type as it comes up: what ``nvidia-smi`` names, and its local disks. ``nvme``: where to mount them."""

    cloud: str
    instance_type: str
    accelerator: str
    accelerators: int
    gpu: str = ""
    disks: tuple[MachineDisk, ...] = ()
    nvme: str | None = None

    @property
    def image(self) -> MachineImage:
        row = find_machine_image(self.cloud, self.instance_type)
        assert row is not None
        return row

    def files(self) -> dict[str, str]:
        """Return what its image has beside the shared root, by path: made after its row, with stand-ins."""
        row = self.image
        codename, release = RELEASES["2404" in (row.image or "")]
        files = {
            "etc/os-release": f'ID=ubuntu\nVERSION_ID="{release}"\nVERSION_CODENAME={codename}\n',
            "usr/sbin/mdadm": (TOOLS / "mdadm").read_text(),
        }
        if row.container_runtime == PRESENT:
            files |= docker_files()
            files["etc/systemd/system/multi-user.target.wants/docker.service"] = (
                "-> /usr/lib/systemd/system/docker.service"
            )
        if row.toolkit == PRESENT:
            files["etc/docker/daemon.json"] = json.dumps({"runtimes": {"nvidia": {"path": "nvidia-container-runtime"}}})
            files["usr/bin/nvidia-ctk"] = (TOOLS / "nvidia-ctk").read_text()
        if row.vendor == "nvidia":
            files["usr/bin/nvidia-smi"] = (TOOLS / "nvidia-smi").read_text()
            files["etc/stand-in/gpus"] = f"{self.gpu}, {row.driver}\n" * self.accelerators
        if "/opt/dlami/nvme" in row.local_disks:
            script, unit = "/opt/aws/dlami/bin/nvme_ephemeral_drives.sh", "etc/systemd/system/dlami-nvme.service"
            files[script[1:]] = (TOOLS / "nvme_ephemeral_drives.sh").read_text()
            files[unit] = f"[Service]\nExecStart={script}\n[Install]\nWantedBy=multi-user.target\n"
            files["etc/systemd/system/multi-user.target.wants/dlami-nvme.service"] = f"-> /{unit}"
        if "temporary disk at /mnt" in row.local_disks and self.disks:
            unit = "etc/systemd/system/stand-in-agent.service"
            start = "ExecStart=/bin/sh -c 'exec mount $(cat /etc/stand-in/volume) /mnt'"
            files[unit] = f"[Unit]\nBefore=cloud-final.service\n[Service]\nType=oneshot\n{start}\n"
            files["etc/systemd/system/multi-user.target.wants/stand-in-agent.service"] = f"-> /{unit}"
        return files

    def devices(self) -> tuple[str, ...]:
        return ("/dev/kfd", "/dev/dri/renderD128") if self.image.vendor == "amd" else ()


@cache
def agent() -> bytes:
    return pack_agent()


@dataclass
class MachineRunner:
    """Boots and deletes the machines of one gang, as Terraform does. ``files``: what differs on a rank's machine."""

    case: BootCase
    folder: Path
    network: MachineNetwork
    root: DebianRoot
    files: Mapping[int, Mapping[str, str | None]] = field(default_factory=dict)
    full: str = ""
    devices: tuple[str, ...] = ()
    machines: list[DebianMachine] = field(default_factory=list)
    # Whether a machine is deleted only once it is off by itself.
    waits_until_off: bool = False

    def preview(self, directory: Path, **_: Any) -> Preview:
        return Preview(("machines",), (), (), (), directory / "preview")

    def apply(self, directory: Path, *_: Any, **__: Any) -> ApplyResult:
        user_data = json.loads((directory / SECRETS).read_text())["user_data"]
        rows = []
        for rank, text in sorted(user_data.items()):
            files = {**self.case.files(), **self.files.get(int(rank), {})}
            kept = {path: content for path, content in files.items() if content is not None}
            machine = DebianMachine(
                self.root, self.folder / f"machine-{rank}", self.network, kept, self.case.disks, self.full,
                self.devices,
            )  # fmt: skip
            self.machines.append(machine)
            machine.boot(text)
            row = {"rank": int(rank), "id": f"i-{rank}", "address": "127.0.0.1", "private_address": "", "zone": ""}
            rows.append({**row, "market": "on_demand", "max_usd_per_hour": None})
        return ApplyResult({"nodes": json.dumps(rows)}, (), ())

    def destroy(self, *_: Any) -> tuple[TerraformEvent, ...]:
        for machine in self.machines:
            if self.waits_until_off:
                machine.wait_off(60)
            machine.end()
        return ()


@dataclass
class BootedGang:
    """One gang in a state and a network of its own, with the real coordinator and controller."""

    site: ControllerContext
    runner: MachineRunner
    servers: VendorServers
    attempt: Attempt
    told: list[str]
    order: Order
    spec: Any
    coordinator: CoordinatorServer
    metadata: MetadataService

    def provision(self) -> ProvisionResult:
        """Make the gang as the controller does: until its ranks have met, or until it is given back."""
        request: Any = SimpleNamespace(order=self.order)
        return _provision(self.site, request, self.attempt, self.spec)

    @property
    def now(self) -> Attempt:
        """The attempt as it is in the database."""
        found = self.site.store.attempts.get(self.attempt.id)
        assert found is not None
        return found

    @property
    def machine(self) -> DebianMachine:
        """The machine of rank 0."""
        return self.runner.machines[0]

    def checks(self, rank: int = 0) -> dict[str, tuple[str, str]]:
        """Return the checks of a rank's machine that reached the coordinator: problem and finding by name."""
        entries = self.site.store.journal.entries(self.attempt.id, what=("preflight",))
        checks: Any = [entry.details["checks"] for entry in entries if entry.details["rank"] == rank]
        return {check["name"]: (check["problem"], check["what"]) for check in checks[0]} if checks else {}

    def log(self, rank: int = 0) -> str:
        """Return a rank's output as the coordinator stored it."""
        return "".join(file.read_text() for file in self.site.runs.parent.rglob(f"*{rank}*.log"))

    def wait_result(self, seconds: float = 60) -> str:
        """Wait until the gang has a result, and return it."""
        began = time.monotonic()
        while not self.now.result:
            assert in_time(began, seconds), f"{self.now}\n{self.machine.describe()}"
            time.sleep(0.05)
        return self.now.result

    def release(self) -> Attempt:
        return release(self.site, self.now, "finished", "")


@contextmanager
def booting(
    folder: Path,
    case: BootCase,
    *,
    machines: int = 1,
    files: Mapping[int, Mapping[str, str | None]] | None = None,
    full: str = "",
    devices: tuple[str, ...] | None = None,
    refused: Mapping[str, int] | None = None,
    **deploy: Any,
) -> Iterator[BootedGang]:
    """A gang of machines of that type that is about to be made; what still runs at the end of the block is ended.

    ``files``: what differs on a rank's machine, None where a file is missing. ``full``: a folder whose disk is full.
    ``devices``: those of the driver.
    ``refused``: the status with which a vendor's host refuses. ``deploy``: settings of the deploy file.
    """
    told: list[str] = []
    with ExitStack() as ends:
        network = MachineNetwork()
        ends.callback(network.close)
        runner = MachineRunner(case, folder, network, debian_root(), files or {}, full)
        runner.devices = case.devices() if devices is None else devices
        ends.callback(runner.destroy)
        metadata = MetadataService()
        service = metadata.running((LINK_LOCAL, 80))
        network.run(service.__enter__)
        ends.callback(service.__exit__, None, None, None)
        servers = ends.enter_context(VendorServers(runner.root, dict(refused or {})).serving(network))
        cloud = {"network": {"id": "n-1", "subnets": {"r1-a": "s-1"}}, "local_nvme": case.nvme, "ssh_public_key": KEY}
        timeouts = {"rendezvous": f"{on_a_busy_machine(RENDEZVOUS_SECONDS):.0f}s"}
        settings = Deploy.model_validate({"clouds": {case.cloud: cloud}, "timeouts": timeouts, **deploy})
        clocks: dict[str, Any] = {"clock": real_clock, "wall_clock": real_clock}
        site = ends.enter_context(bare_site(folder, told, runner=runner, deploy=settings, **clocks))
        handler = AgentMessageHandler(
            site.store, folder / "logs", real_clock, ticks=time.monotonic, fresh_seconds=0.05, retry_seconds=0.05
        )
        certificate, key = write_certificate(folder)
        coordinator = CoordinatorServer(make_app(handler, agent(), site.store.id), "127.0.0.1", 0, certificate, key)
        network.run(coordinator.__enter__)
        ends.callback(coordinator.__exit__)
        digest = hashlib.sha256(agent()).hexdigest()
        home = CoordinatorEndpoint(coordinator.url, digest, certificate.read_text())
        now = real_clock()
        job = a_job("bert", run={"command": COMMAND, "engine": "command", "image": IMAGE})
        order = Order(job.name, f"{job.name}/1", now, now + timedelta(hours=1), ())
        price = UsdPerHour.parse("24")
        seat = NodeRecord(
            "", 0, "", "r1-a", case.instance_type, Market.ON_DEMAND, case.accelerator, case.accelerators, price, price
        )
        choice = GangPlacement(0, case.cloud, "r1", (seat,) * machines, now, order.end)
        name = attempt_name(site.store.id, "plan", order, 1)
        attempt, nodes = new_attempt(name, "plan", order, choice, 1, job, job.digest, TOKEN, now)
        site.store.attempts.add(attempt, nodes)
        spec = build_workspace(attempt, nodes, job, settings, site.store.id, home, NodeSecrets(TOKEN))
        yield BootedGang(site, runner, servers, attempt, told, order, spec, coordinator, metadata)
        handler.flush()


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
