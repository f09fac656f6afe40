"""docs/accounts.md: its examples are read by the program itself, its links lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

from providers.registry import CLOUDS
from router.config.settings_files import load_clouds, load_deploy
from tests.support.repository import ROOT

PAGE = ROOT / "docs" / "accounts.md"
TEXT = PAGE.read_text(encoding="utf-8")


def example(kind: str, folder: Path) -> Path:
    """The one example of a kind of file, written out."""
    (found,) = re.findall(rf"^```yaml {kind}\n(.*?)^```", TEXT, flags=re.MULTILINE | re.DOTALL)
    path = folder / f"{kind}.yaml"
    path.write_text(found, encoding="utf-8")
    return path


def test_the_deploy_file_is_one(tmp_path: Path) -> None:
    deploy = load_deploy(example("deploy", tmp_path), named=True)
    assert set(deploy.clouds) == {"aws", "gcp", "azure", "static"}
    assert deploy.cloud("aws", "us-east-1").network is not None


def test_the_clouds_file_is_one(tmp_path: Path) -> None:
    clouds = load_clouds(example("clouds", tmp_path), named=True)
    assert clouds.settings("gcp").options == {"project": "research-training"}
    assert clouds.settings("azure").options["subscription"]


def test_links_lead_to_files_and_sections() -> None:
    sections = {
        re.sub(r"[^\w -]", "", line.lstrip("# ").lower()).replace(" ", "-")
        for line in TEXT.splitlines()
        if line.startswith("#")
    }
    links = re.findall(r"\]\(([^)]+)\)", TEXT)
    assert len(links) >= 7
    for link in links:
        path, _, section = link.partition("#")
        assert not path or (PAGE.parent / path).exists(), link
        assert not section or section in sections, link


def test_every_cloud_with_a_fleet_is_told() -> None:
    titles = {"aws": "| AWS |", "gcp": "| Google Cloud |", "azure": "| Azure |", "sandbox": "| sandbox |"}
    assert set(titles) == {cloud for cloud, entry in CLOUDS.items() if entry.fleet}
    assert all(title in TEXT for title in titles.values())
