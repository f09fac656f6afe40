"""A state database that is lost or was swapped is not taken for a new one while run directories lie beside it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from router.app.settings import AppSettings, check_not_lost, identity_of, open_state
from router.app.state_restoration import restore_state
from router.controller.workspace.run_folders import files_to_back_up, restore_files, run_directories
from router.deploy.deploy_settings import Deploy
from router.prices.cloud_settings import Clouds, LoadedClouds
from router.state.errors import ExistsError, StateError
from router.state.ledger_file import DamagedError
from router.state.ledger_rows import NAMES, entry_values, parse_entry
from router.state.state_backup import StoredFile, read_stored_files
from router.state.store import StateStore
from tests.support.state_values import NOW, attempt, entry, node

EARLIER = "s00000000aa"


@pytest.fixture
def home(tmp_path: Path) -> AppSettings:
    return an_opened(tmp_path / "home")


def an_opened(folder: Path, **deploy: Any) -> AppSettings:
    return AppSettings(Deploy(**deploy), LoadedClouds(Clouds(), {}), folder, {})


def run_directory(home: AppSettings, name: str = "walk-1", state: str = "") -> Path:
    folder = home.runs / name
    (folder / "module").mkdir(parents=True)
    (folder / "module" / "main.tf").write_text("# a module")
    (folder / "terraform.tfvars.json").write_text(json.dumps({"attempt": name, "tags": {"stepfare_state": state}}))
    (folder / "secrets.auto.tfvars.json").write_text('{"user_data": {"0": "canary"}}')
    (folder / "terraform.tfstate").write_text('{"resources": []}')
    return folder


def a_state(home: AppSettings) -> str:
    """The id of one with an attempt, whose run directory is there."""
    with open_state(home, NOW) as store:
        store.attempts.add(attempt("walk-1"), (node("walk-1", 0), node("walk-1", 1)))
        store.ledger.add([entry("k1")])
        store.journal.note("walk-1", "provisioning", NOW, disk_gib=5)
        run_directory(home, state=store.id)
        return store.id


def a_backup(home: AppSettings, tmp_path: Path) -> tuple[str, Path]:
    """The id of a state, and a backup of it."""
    known, file = a_state(home), tmp_path / "state.gz"
    with open_state(home, NOW) as store:
        store.whole.write(file, files_to_back_up(home.runs))
    return known, file


def test_the_id_stands_beside_the_database(home: AppSettings) -> None:
    known = a_state(home)
    assert identity_of(home).file == home.folder / "state.id"
    assert identity_of(home).file.read_text() == f"{known}\n"
    with open_state(home, NOW) as store:
        assert store.id == known
    check_not_lost(home)


def test_a_state_that_is_missing_beside_run_directories_is_not_made_anew(home: AppSettings) -> None:
    """Else the same plan is applied a second time, and nothing knows the machines of the first."""
    known = a_state(home)
    (home.folder / "state.db").unlink()
    for look in (lambda: open_state(home, NOW), lambda: check_not_lost(home)):
        with pytest.raises(
            StateError, match=f"state.db is missing, and 1 run directory of state {known} lies"
        ) as caught:
            look()
        assert "stepfare state restore FILE" in caught.value.remedy
        assert f"stepfare sweep --state {known} --yes" in caught.value.remedy
    assert not (home.folder / "state.db").exists()
    with open_state(home, NOW, new_state=True) as store:
        new = store.id
    assert new != known
    assert identity_of(home).ids == (known, new)
    with open_state(home, NOW) as store:
        assert store.id == new


def test_without_the_mark_run_directories_say_whose_they_are(home: AppSettings) -> None:
    """As a version before there was a mark left them."""
    run_directory(home, state=EARLIER)
    with pytest.raises(StateError, match=f"of state {EARLIER}"):
        open_state(home, NOW)
    (home.runs / "walk-1" / "terraform.tfvars.json").write_text("{")
    with pytest.raises(StateError, match="of another state"):
        open_state(home, NOW)


def test_a_state_from_before_there_was_a_mark_gets_one(home: AppSettings) -> None:
    known = a_state(home)
    identity_of(home).file.unlink()
    with open_state(home, NOW, marks=False) as store:
        assert store.id == known
    assert not identity_of(home).file.exists()  # as for a dry run
    with open_state(home, NOW) as store:
        assert store.id == known
    assert identity_of(home).file.read_text().split() == [known]


def test_a_database_of_another_state_is_not_taken_for_the_one_that_was_here(home: AppSettings, tmp_path: Path) -> None:
    a_state(home)
    with StateStore.open(f"sqlite:///{tmp_path / 'other.db'}", now=NOW) as store:
        other = store.id
    (tmp_path / "other.db").replace(home.folder / "state.db")
    with pytest.raises(StateError, match=f"state.db is state {other}, and 1 run directory"):
        open_state(home, NOW)


def test_without_run_directories_a_new_state_is_made_as_ever(home: AppSettings) -> None:
    with open_state(home, NOW) as store:
        first = store.id
    (home.folder / "state.db").unlink()
    with open_state(home, NOW) as store:
        assert store.id != first
        assert identity_of(home).ids == (first, store.id)


def test_each_database_of_one_home_has_its_own_mark(tmp_path: Path) -> None:
    folder = tmp_path / "home"
    one, other = an_opened(folder), an_opened(folder, state=f"sqlite:///{tmp_path / 'elsewhere.db'}")
    known = a_state(one)
    with open_state(other, NOW, new_state=True) as store:
        assert store.id != known
    assert identity_of(one).ids == (known,)
    with open_state(one, NOW) as store:
        assert store.id == known


def test_a_backup_brings_state_and_run_directories_back(home: AppSettings, tmp_path: Path) -> None:
    known, file = a_state(home), tmp_path / "state.gz"
    (home.runs / "walk-1" / "terraform.tfstate").write_bytes(b"\xff" * 3_000_000)
    with open_state(home, NOW) as store:
        store.whole.write(file, files_to_back_up(home.runs))
        journal, entries = store.journal.entries(), store.ledger.entries()
    assert file.stat().st_mode & 0o077 == 0
    other = an_opened(tmp_path / "other")
    assert restore_state(other, file, NOW, NOW, "anna") == (known, ("walk-1",))
    with open_state(other, NOW) as store:
        assert store.attempts.find() == (attempt("walk-1"),)
        assert len(store.attempts.nodes("walk-1")) == 2
        assert (store.journal.entries(), store.ledger.entries()) == (journal, entries)
        assert store.ledger.verify().problems == ()
        assert [(line.who, line.what) for line in store.audit.entries()] == [("anna", "state restore")]
    folder = other.runs / "walk-1"
    assert sorted(path.name for path in folder.iterdir()) == ["module", "terraform.tfstate", "terraform.tfvars.json"]
    assert (folder / "terraform.tfstate").stat().st_size == 3_000_000
    assert (folder / "module" / "main.tf").read_text() == "# a module"
    assert identity_of(other).ids == (known,)


def test_a_restore_that_was_killed_is_done_again(home: AppSettings, tmp_path: Path) -> None:
    """No half of a run directory is taken for one that was there."""
    (_, file), other = a_backup(home, tmp_path), an_opened(tmp_path / "other")

    def until_killed() -> Iterator[StoredFile]:
        yield next(read_stored_files(file))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        restore_files(other.runs, until_killed())
    assert run_directories(other.runs) == ()
    assert restore_state(other, file, NOW, NOW, "anna")[1] == ("walk-1",)
    assert [path.name for path in other.runs.iterdir()] == ["walk-1"]
    assert len(list((other.runs / "walk-1").iterdir())) == 3


def test_run_directories_that_are_there_are_newer_than_a_backup(home: AppSettings, tmp_path: Path) -> None:
    known, file = a_backup(home, tmp_path)
    (home.runs / "walk-1" / "terraform.tfstate").write_text('{"resources": ["newer"]}')
    for name in ("state.db", "state.id"):
        (home.folder / name).unlink()
    assert restore_state(home, file, NOW, NOW, "anna") == (known, ())
    assert "newer" in (home.runs / "walk-1" / "terraform.tfstate").read_text()
    with pytest.raises(ExistsError, match="is there already"):
        restore_state(home, file, NOW, NOW, "anna")


@pytest.mark.parametrize("at", [0.1, 0.5, 0.98])
def test_a_backup_that_was_changed_or_cut_off_restores_nothing(home: AppSettings, tmp_path: Path, at: float) -> None:
    _, file = a_backup(home, tmp_path)
    content = file.read_bytes()
    other = an_opened(tmp_path / "other")
    for bad in (content[: int(len(content) * at)], content[:200] + bytes([content[200] ^ 1]) + content[201:]):
        file.write_bytes(bad)
        with pytest.raises(DamagedError):
            restore_state(other, file, NOW, NOW, "anna")
        assert not other.folder.exists()


def test_an_entry_with_a_fraction_of_nothing_is_no_entry() -> None:
    """A flipped bit of a backup made a 0 of a denominator, which was an error of arithmetic and no damaged file."""
    values = entry_values(entry())
    place = NAMES.index("quantity")
    changed = [*values[:place], "1/0", *values[place + 1 :]]
    with pytest.raises(ValueError, match="Fraction"):
        parse_entry(changed)
