"""Workspaces to make: one for each cloud, as an operator would have them, and sandbox gangs of any size.

``python -m tests.support.gangs`` writes tests/golden/workspaces anew; look at the diff before you commit it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pricing.money import UsdPerHour
from pricing.places import Market
from terraform.render import render
from terraform.spec import Backend, Host, NetworkSpec, NodeSpec, ReadableSpec, WorkspaceSpec
from tests.support.repository import ROOT

GOLDEN = ROOT / "tests" / "golden" / "workspaces"
TAGS = {
    "stepfare_attempt": "llama-7f3a-1",
    "stepfare_job": "llama",
    "stepfare_plan": "7f3a90c1",
    "stepfare_state": "s0123456789",
    "team": "research",
    "cost_center": "cc-42",
}
S3: Mapping[str, str | bool] = {
    "bucket": "state",
    "region": "us-east-1",
    "key": "stepfare/{attempt}",
    "encrypt": True,
    "use_lockfile": True,
}
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGm9n0TkfYV3vXQxq0cVn0b7cOiyQn0mS7l1v2YVh0aB ops@example"
CONTAINER = (
    "/subscriptions/0b1f6471/resourceGroups/research/providers/Microsoft.Storage/storageAccounts/research"
    "/blobServices/default/containers/checkpoints"
)

REGISTRY = "/subscriptions/0b1f6471/resourceGroups/research/providers/Microsoft.ContainerRegistry/registries/research"


def sandbox(
    attempt: str = "demo-1", count: int = 4, scripts: Mapping[int, str] | None = None, *, zone: str | None = None
) -> WorkspaceSpec:
    """Local nodes; idle unless they have a script."""
    nodes = tuple(
        NodeSpec(rank, f"{attempt}-{rank}", zone, "sim-8xh100", Market.SPOT, UsdPerHour.parse("12.5"))
        for rank in range(count)
    )
    tags = {**TAGS, "stepfare_attempt": attempt}
    return WorkspaceSpec(attempt, "sandbox", "local", nodes, tags, user_data=scripts or {})


def _gang(cloud: str, region: str, nodes: tuple[NodeSpec, ...], **more: object) -> WorkspaceSpec:
    user_data = {node.rank: f"#cloud-config\n# node {node.rank}\nruncmd: [[/usr/bin/true]]\n" for node in nodes}
    return WorkspaceSpec("llama-7f3a-1", cloud, region, nodes, TAGS, user_data=user_data, **more)  # type: ignore[arg-type]


def _nodes(count: int, zone: str | None, machine: str, market: Market, **more: object) -> tuple[NodeSpec, ...]:
    return tuple(NodeSpec(rank, f"llama-7f3a-1-{rank}", zone, machine, market, **more) for rank in range(count))  # type: ignore[arg-type]


def examples() -> Mapping[str, WorkspaceSpec]:
    return {
        "aws": _gang(
            "aws",
            "us-east-1",
            _nodes(4, "use1-az4", "p5.48xlarge", Market.SPOT, max_usd_per_hour=UsdPerHour.parse("60.48")),
            fabric="efa",
            disk_gib=500,
            checkpoint_bucket="research-checkpoints",
            readable=ReadableSpec(("corpus",), ("arn:aws:ecr:us-east-1:123456789012:repository/train",)),
            permissions_boundary="arn:aws:iam::123456789012:policy/stepfare-boundary",
            backend=Backend("s3", S3),
        ),
        "gcp": _gang(
            "gcp",
            "us-central1",
            _nodes(2, "us-central1-a", "a3-highgpu-8g", Market.RESERVED, reservation="projects/p/reservations/night"),
            fabric="gpudirect-tcpx",
            checkpoint_bucket="research-checkpoints",
            readable=ReadableSpec(("corpus",), ("projects/p/locations/us-central1/repositories/train",)),
            network=NetworkSpec("projects/p/global/networks/train", {"": "projects/p/subnetworks/train"}),
            lifetime_seconds=86_400,
            backend=Backend("gcs", {"bucket": "state", "prefix": "stepfare/{attempt}"}),
        ),
        "azure": _gang(
            "azure",
            "eastus",
            _nodes(2, "1", "Standard_ND96isr_H100_v5", Market.ON_DEMAND),
            fabric="infiniband",
            image="/subscriptions/0b1f6471/resourceGroups/research/providers/Microsoft.Compute/images/hpc-2204",
            ssh_public_key=KEY,
            checkpoint_bucket=CONTAINER,
            readable=ReadableSpec((CONTAINER.replace("checkpoints", "corpus"),), (REGISTRY,)),
        ),
        "static": _gang(
            "static",
            "hall-1",
            _nodes(2, None, "dgx-h100", Market.ON_DEMAND),
            fabric="infiniband",
            hosts={0: Host("dgx-1.example.org", 2222, "ops", KEY, "10.0.0.1"), 1: Host("192.0.2.2")},
            private_key_path=Path("/etc/stepfare/pool-key"),
        ),
        "sandbox": sandbox(count=3, scripts={0: "exec sleep 60", 1: "exec sleep 60"}),
    }


def write(folder: Path = GOLDEN) -> None:
    for cloud, spec in examples().items():
        (folder / cloud).mkdir(parents=True, exist_ok=True)
        for name, text in render(spec).items():
            (folder / cloud / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write()
