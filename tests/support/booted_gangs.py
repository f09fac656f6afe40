"""Gangs whose machines are roots of Debian: the real controller renders, boots, waits for and gives back a gang.

In the place of Terraform stands a runner that boots a machine for each user data that Terraform would be given.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from pricing.machine_images import PRESENT, MachineImage, find_machine_image
from pricing.money import UsdPerHour
from pricing.places import Market
from router.controller.context import ControllerContext
from router.controller.plans import Order
from router.controller.provision.provision_order import ProvisionResult, _provision
from router.controller.release.release import release
from router.controller.workspace.bootstrap import CoordinatorEndpoint, NodeSecrets, pack_agent
from router.controller.workspace.placement_options import GangPlacement
from router.controller.workspace.workspaces import attempt_name, build_workspace, new_attempt
from router.coordinator.app import make_app
from router.coordinator.handlers import AgentMessageHandler
from router.coordinator.server import CoordinatorServer
from router.deploy.deploy_settings import Deploy
from router.state.records import Attempt, NodeRecord
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
        """Its row of the table of images."""
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
        """Return the devices of its driver."""
        return ("/dev/kfd", "/dev/dri/renderD128") if self.image.vendor == "amd" else ()


@cache
def agent() -> bytes:
    """The packed agent."""
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
        """Release the gang as one that finished."""
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
