"""The documentation is true: links resolve, commands exist, files shown are valid, generated pages are up to date."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.main import get_command

from docs import man_page
from docs.reference_pages import PAGES
from router.cli.commands import TABLE
from router.cli.main import app
from router.config.settings_files import load_clouds, load_deploy
from tests.bench.code_figures import retired_in
from tests.support.command import NOW, run
from tests.support.doc_pages import (
    DOCS,
    anchors,
    blocks,
    current_pages,
    links,
    pages,
    prose,
    run_in_order,
    stepfare_commands,
    without_chance,
)
from tests.support.repository import ROOT, ran

ROOT_COMMAND: Any = get_command(app)
NAMED = [(page, block) for page in current_pages() for block in blocks(page) if block.kind.startswith("yaml ")]
_INLINE = re.compile(r"`stepfare ([a-z][^`]*)`")


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("page", pages(), ids=_name)
def test_every_link_and_anchor_resolves(page: Path) -> None:
    for link in links(page):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        if anchor:
            assert anchor in anchors(target), link


def test_the_index_leads_to_every_page() -> None:
    """Every page of docs is one or two links away from the overview."""
    first = {(DOCS / link.partition("#")[0]).resolve() for link in links(DOCS / "index.md")}
    second = {
        (page.parent / link.partition("#")[0]).resolve()
        for page in first
        if page.suffix == ".md"
        for link in links(page)
    }
    assert [_name(page) for page in current_pages() if page not in first | second | {DOCS / "index.md"}] == []


def _is_group(command: Any) -> bool:
    return hasattr(command, "list_commands")


def _command(words: list[str]) -> tuple[Any, list[str]]:
    """Return the command that the words begin with, as the program finds it, and the words that are left."""
    command, rest = ROOT_COMMAND, words
    while _is_group(command) and rest:
        with command.make_context("stepfare", [], resilient_parsing=True) as context:
            _, command, rest = command.resolve_command(context, rest)
    return command, rest


def _all_commands(group: Any = ROOT_COMMAND, prefix: str = "") -> Iterator[str]:
    """Yield the words of every command that help lists, also of those in nested groups."""
    for name in group.list_commands(None):
        command = group.get_command(None, name)
        if _is_group(command):
            yield from _all_commands(command, f"{prefix}{name} ")
        else:
            yield f"{prefix}{name}"


@pytest.mark.parametrize("page", current_pages(), ids=_name)
def test_commands_in_code_blocks_parse(page: Path) -> None:
    for block in blocks(page):
        for words in stepfare_commands(block):
            command, rest = _command(words)
            command.make_context(command.name, rest).close()


@pytest.mark.parametrize("page", current_pages(), ids=_name)
def test_commands_in_the_text_exist_with_their_options(page: Path) -> None:
    for shown in _INLINE.findall(prose(page)):
        command, rest = _command(shown.split())
        options = {name for option in command.params for name in (*option.opts, *option.secondary_opts)} | {"--help"}
        assert {word.split("=")[0] for word in rest if re.match(r"--?[a-z]", word)} <= options, shown


def test_what_pages_and_schedules_plan_from_the_last_plan_is_the_night() -> None:
    """A plan without a name is a trial: the console does not show it, and quotes are not under its limits."""
    files = [*current_pages(), *sorted(path for path in (ROOT / "examples" / "schedule").iterdir() if path.is_file())]
    lines = [(_name(path), line) for path in files for line in path.read_text(encoding="utf-8").splitlines()]
    planned = [(name, line) for name, line in lines if "--since last" in line and "--out" in line]
    assert {"docs/guides/platform-team.md", "examples/schedule/nightly-plan.sh"} <= {name for name, _ in planned}
    assert [(name, line) for name, line in planned if "--name night" not in line] == []


def test_help_names_jobs_of_the_examples() -> None:
    files = (ROOT / "examples").rglob("*.yaml")
    jobs = re.findall(r"^name: (\S+)", "\n".join(path.read_text(encoding="utf-8") for path in files), re.MULTILINE)
    helps = [_command(words.split())[0].help or "" for words in _all_commands()]
    named = {name for text in helps for name in re.findall(r"\bllama[\w-]*", text)}
    assert named
    # Behind the name of a job an attempt has a dash and digits.
    assert [name for name in named if not any(name == job or name.startswith(f"{job}-") for job in jobs)] == []


def test_no_page_table_or_help_names_a_job_that_never_was() -> None:
    """`llama-7b` stood in help and in pages, and no file had it."""
    folders = ("docs", "examples", "notebooks", "pricing", "providers", "router", "terraform")
    paths = [path for folder in folders for path in (ROOT / folder).rglob("*") if "__pycache__" not in path.parts]
    texts = [path for path in (ROOT / "README.md", *paths) if path.is_file()]
    assert [_name(path) for path in texts if b"llama-7b" in path.read_bytes().lower()] == []


def test_the_page_on_commands_has_each_of_them() -> None:
    table = (DOCS / "commands.md").read_text(encoding="utf-8").partition("## Which command")[2].partition("## Exit")[0]
    shown = re.findall(r"`stepfare ([a-z0-9 -]+)`", table)
    assert len(shown) == len(set(shown))
    assert set(_all_commands()) <= set(shown)
    for words in shown:
        command, rest = _command(words.split())
        assert not rest, words
        assert not _is_group(command), words


@pytest.mark.slow
def test_getting_started_runs_as_written(tmp_path: Path) -> None:
    page = DOCS / "getting-started.md"
    for kind in ("job", "limits"):
        (block,) = blocks(page, f"yaml {kind}")
        (tmp_path / f"{kind}.yaml").write_text(block.text, encoding="utf-8")
    commands = [command for block in blocks(page, "console") for command in block.commands()]
    assert len(commands) >= 15
    own = {name: value for name, value in os.environ.items() if not name.startswith("STEPFARE_")}
    done = run_in_order(commands, tmp_path, own)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "rank 1 of 2" in done.stdout
    assert "hello finished" in done.stdout
    printed = {without_chance(line) for line in (done.stdout + done.stderr).splitlines()}
    shown = [line for block in blocks(page, "text") for line in block.text.splitlines() if line.strip()]
    assert len(shown) >= 15
    # On a busy machine the training is done before the next look at it, and nothing says that it runs.
    sure = [line for line in shown if not line.endswith("runs on 2 machines")]
    assert len(sure) == len(shown) - 1
    assert [line for line in sure if without_chance(line) not in printed] == []


@pytest.mark.parametrize(("page", "block"), NAMED, ids=lambda value: _name(value) if isinstance(value, Path) else "")
def test_files_shown_are_valid(page: Path, block: Any, tmp_path: Path) -> None:
    kind = block.kind.removeprefix("yaml ")
    file = tmp_path / f"{kind}.yaml"
    file.write_text(block.text, encoding="utf-8")
    if kind == "deploy":
        load_deploy(file, named=True)
    elif kind == "clouds":
        load_clouds(file, named=True)
    else:
        book = "embedded" if kind == "job" else "none"
        done = run("validate", file, "--book", book, "--now", NOW)
        assert done.exit_code == 0, done.output


@pytest.mark.parametrize("page", current_pages(), ids=_name)
def test_job_files_are_marked_as_such(page: Path) -> None:
    """A block that is a job file is fenced as `yaml job`, so that it is validated."""
    for block in blocks(page, "yaml"):
        content = yaml.safe_load(block.text)
        assert not (isinstance(content, dict) and {"steps", "workload"} <= set(content)), block.text


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.kind)
def test_generated_pages_are_up_to_date(page: Any) -> None:
    """When this fails: `python -m docs.reference_pages`."""
    assert page.path.read_text(encoding="utf-8") == page.text()


def test_the_manual_page_is_up_to_date() -> None:
    """When this fails: `python -m docs.man_page`."""
    assert man_page.PAGE.read_text(encoding="utf-8") == man_page.render_page()


def test_the_manual_page_has_every_command_with_its_options() -> None:
    assert sorted(man_page.command_names()) == sorted(TABLE.commands)
    sections = man_page.render_page().replace("\\-", "-").split(".SH COMMANDS IN DETAIL")[1].split("\n.SS ")
    shown = {section.splitlines()[0]: section for section in sections[1:]}
    for name in TABLE.commands:
        section = next(text for usage, text in shown.items() if f"{usage} ".startswith(f"stepfare {name} "))
        command, _ = _command(name.split())
        named = set(re.findall(r"(?<![\w-])--[a-z-]+", section))
        # A retired option is hidden: it is read until its version, and shown nowhere.
        told = [option for option in command.params if not getattr(option, "hidden", False)]
        assert {word for option in told for word in option.opts if word.startswith("--")} <= named, name


@pytest.mark.skipif(shutil.which("groff") is None, reason="groff is not installed")
def test_the_manual_page_is_roff_without_a_warning() -> None:
    checked = subprocess.run(
        ["groff", "-man", "-Tutf8", "-ww", "-z", str(man_page.PAGE)], capture_output=True, text=True, check=True
    )
    assert checked.stderr == ""


def test_every_field_of_a_generated_page_has_a_meaning() -> None:
    empty = [
        f"{page.kind}: {row}"
        for page in PAGES
        for row in page.text().splitlines()
        if row.startswith("| `") and not row.split(" | ")[3].strip()
    ]
    assert empty == []


def test_the_glossary_has_each_word_once() -> None:
    rows = [line.split(" | ") for line in (DOCS / "glossary.md").read_text(encoding="utf-8").splitlines()]
    words = [row[0].removeprefix("| ") for row in rows if len(row) == 3 and row[0].startswith("| ")][1:]
    assert len(words) >= 40
    assert words == sorted(set(words), key=str.lower)


@pytest.mark.parametrize("page", current_pages(), ids=_name)
def test_retired_words_do_not_come_back(page: Path) -> None:
    if page.name == "glossary.md":
        return
    text = prose(page)
    assert retired_in(text) == {}


@pytest.mark.slow
def test_the_site_builds_without_a_warning_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    built = ran([sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)], cwd=ROOT)
    assert built.returncode == 0, built.stderr
    for page in tmp_path.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        assert re.findall(r'(?:src=|<link[^>]*href=)["\'](?:https?:)?//[^"\']*', text) == [], page
