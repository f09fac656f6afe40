"""What holds for every cloud module: the same variables and outputs, one format, versions pinned to the schemas that
the tests have; and what the schema files themselves hold."""

from __future__ import annotations

import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from terraform.module_metadata import module_facts
from terraform.spec import Backend
from terraform.workdir import PluginSources, is_initialized, prepare
from tests.support import terraform_runs as runs
from tests.support.extract_schema import WANTED
from tests.support.gangs import examples
from tests.support.terraform_standin import MODULES, PROVIDERS, Engine, mirror, schema, standin_python

REAL = ("aws", "azure", "gcp", "static")


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Engine:
    return Engine.beside(tmp_path_factory.mktemp("standin"))


def _without_comments(text: str) -> str:
    return re.sub(r"(?m)^\s*#.*$", "", text)


def _sources(module: str) -> list[Path]:
    return sorted((MODULES / module).glob("*.tf"))


def test_variables_are_the_same_everywhere() -> None:
    assert len({(MODULES / m / "variables.tf").read_text() for m in REAL}) == 1


def test_the_sandbox_declares_the_same_names() -> None:
    declared = [
        set(re.findall(r'^variable "(\w+)"', (MODULES / m / "variables.tf").read_text(), re.M))
        for m in ("aws", "sandbox")
    ]
    assert declared[0] == declared[1]


@pytest.mark.parametrize("module", REAL)
def test_every_field_of_the_output_is_there(module: str) -> None:
    text = (MODULES / module / "outputs.tf").read_text()
    outputs = ["nodes", *(["network"] if module_facts(module).shared_network is not None else [])]
    assert re.findall(r'^output "(\w+)"', text, re.M) == outputs
    fields = re.findall(r"^      (\w+) +=", text, re.M)
    assert fields[-7:] == ["rank", "id", "address", "private_address", "zone", "market", "max_usd_per_hour"]


@pytest.mark.parametrize("module", REAL)
def test_sources_are_in_the_one_format(engine: Engine, module: str) -> None:
    done = engine.run(MODULES / module, "fmt", "-check", "-diff", "-no-color")
    assert (done.code, done.out) == (0, "")


@pytest.mark.parametrize("module", sorted(PROVIDERS))
def test_the_version_is_pinned_to_the_line_of_the_schema(module: str) -> None:
    document = schema(PROVIDERS[module])
    pinned = re.search(r'version = "~> (\d+\.\d+)"', (MODULES / module / "versions.tf").read_text())
    assert pinned is not None
    assert document["version"].rpartition(".")[0] == pinned[1]


@pytest.mark.parametrize("module", sorted(PROVIDERS))
def test_the_schema_has_what_the_module_uses_and_no_more(module: str) -> None:
    text = _without_comments("\n".join(f.read_text() for f in _sources(module)))
    document = schema(PROVIDERS[module])
    assert set(re.findall(r'^resource "(\w+)"', text, re.M)) == set(document["resource_schemas"])
    assert set(re.findall(r'^data "(\w+)"', text, re.M)) == set(document["data_source_schemas"])
    wanted = {f"{PROVIDERS[module]}_{name.removeprefix('data_')}" for name in WANTED[PROVIDERS[module]]}
    assert wanted == set(document["resource_schemas"]) | set(document["data_source_schemas"])


@pytest.mark.parametrize("module", REAL)
def test_files_are_short_and_say_what_they_are_for(module: str) -> None:
    for file in _sources(module):
        lines = file.read_text().splitlines()
        assert len(lines) <= 200, file
        if file.name not in ("outputs.tf", "versions.tf"):
            assert lines[0].startswith("# "), file


def test_required_fields_are_those_of_the_provider() -> None:
    fields = {
        kind: {n for n, a in block["attributes"].items() if a.get("required")}
        | {n for n, b in block["block_types"].items() if b.get("min_items")}
        for name in PROVIDERS.values()
        for kind, block in schema(name)["resource_schemas"].items()
    }
    assert fields["google_compute_instance"] == {"machine_type", "name", "boot_disk", "network_interface"}
    assert fields["azurerm_linux_virtual_machine_scale_set"] == {
        *("admin_username", "location", "name", "resource_group_name", "sku", "network_interface", "os_disk")
    }
    assert fields["aws_instance"] == set()


@pytest.mark.slow
def test_providers_are_fetched_once_whoever_needs_them_at_once(tmp_path: Path) -> None:
    """With a plugin cache; one that lost its providers is filled again before the next command."""
    mirror(tmp_path, standin_python())
    cache, runner = tmp_path / "cache", runs.runner()
    folders = [tmp_path / name for name in "abcd"]
    spec = replace(examples()["gcp"], backend=Backend())
    for folder in folders:
        prepare(folder, spec, plugins=PluginSources(cache=cache, mirror=tmp_path / "mirror"))
    with ThreadPoolExecutor(len(folders)) as pool:
        list(pool.map(runner.init, folders))
    links = [path for folder in folders for path in (folder / ".terraform/providers").rglob("*") if path.is_symlink()]
    assert len(links) == len(folders)
    assert len({path.readlink() for path in links}) == 1
    assert all(path.readlink().is_relative_to(cache) for path in links)

    shutil.rmtree(cache)
    assert not any(is_initialized(folder) for folder in folders)
    assert runner.state(folders[0]) == ()
    assert [is_initialized(folder) for folder in folders] == [True] * 4
