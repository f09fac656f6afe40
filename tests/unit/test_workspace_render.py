"""A workspace as files: the same bytes as in tests/golden/workspaces, and user data in one of them only."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest

from terraform.render import MAIN, SECRET_FILES, SECRETS, VALUES, render
from terraform.workdir import MODULES
from tests.support.gangs import GOLDEN, examples, sandbox

CLOUDS = sorted(examples())


@pytest.mark.parametrize("cloud", CLOUDS)
def test_the_files_are_the_golden_ones(cloud: str) -> None:
    """``python -m tests.support.gangs`` writes them anew."""
    rendered = render(examples()[cloud])
    golden = {path.name: path.read_text(encoding="utf-8") for path in (GOLDEN / cloud).iterdir()}
    assert dict(rendered) == golden


def test_there_is_a_golden_folder_for_every_cloud_and_no_other() -> None:
    assert sorted(folder.name for folder in GOLDEN.iterdir()) == CLOUDS


def test_the_order_of_what_was_given_does_not_matter() -> None:
    spec = examples()["aws"]
    other = replace(
        spec, tags=dict(reversed(list(spec.tags.items()))), user_data=dict(reversed(list(spec.user_data.items())))
    )
    assert render(other) == render(spec)


def test_user_data_is_in_the_secret_file_alone() -> None:
    files = render(sandbox(count=2, scripts={1: "canary"}))
    assert [name for name, text in files.items() if "canary" in text] == [SECRETS]
    assert {SECRETS} == SECRET_FILES
    # A rank without any has an empty one: modules look every rank up.
    assert json.loads(files[SECRETS]) == {"user_data": {"0": "", "1": "canary"}}


def test_main_holds_no_value_but_the_backend_and_the_source() -> None:
    small, large = render(sandbox("a-1", 2)), render(sandbox("b-2", 500))
    assert small[MAIN] == large[MAIN]
    assert small[VALUES] != large[VALUES]
    assert '"source": "../elsewhere"' in render(sandbox(), "../elsewhere")[MAIN]


def test_hosts_are_rendered_for_the_one_module_that_has_them() -> None:
    hosts = [cloud for cloud in CLOUDS if "hosts" in json.loads(render(examples()[cloud])[VALUES])]
    assert hosts == ["static"]
    # Every module is given what it declares, and everything that it declares.
    for cloud in CLOUDS:
        given = json.loads(render(examples()[cloud])[MAIN])["module"]["gang"]
        declared = "".join(path.read_text() for path in (MODULES / cloud).glob("*.tf"))
        assert set(given) - {"source"} == set(re.findall(r'(?m)^variable "(\w+)"', declared))


def test_prices_are_exact_decimal_strings() -> None:
    nodes = json.loads(render(examples()["aws"])[VALUES])["nodes"]
    assert {node["max_usd_per_hour"] for node in nodes} == {"60.48"}
