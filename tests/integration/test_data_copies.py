"""Data in another region's bucket: copied by `apply` between two object stores of different dialects, killed half
way, resumed, whole to the last byte, metered to the byte; the next job uses the copy, and `data remove` removes it.

5 GB: STEPFARE_TEST_DATA_MB=5000.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from pricing.book_file import write_book
from pricing.egress import SAME_CONTINENT, Tariff, Tier
from pricing.money import Usd, UsdPerGb
from router.checkpoints.arrow_store import open_arrow_store
from router.checkpoints.object_store import CheckpointStore
from router.ledger.entry import CostItem, LedgerEntry
from router.planning.document.plan_json import plan_from_json
from router.prices.bookstore import BookStore
from tests.support.busy import eventually
from tests.support.deployed import SANDBOX, NewSite, Site, Template, job
from tests.support.gcs_emulator import BUCKET, gcs_emulator, gcs_url
from tests.support.object_store import ObjectStore, object_store
from tests.support.terraform_runs import needs_engine

pytestmark = [needs_engine, pytest.mark.slow]

MEGABYTES = int(os.environ.get("STEPFARE_TEST_DATA_MB", "200"))
URI, NEAR, FAR = "s3://bucket-east/corpus", "sandbox-east", "sandbox-west"
TARIFF = Tariff("sandbox", SAME_CONTINENT, "any", "any", (Tier(0, None, UsdPerGb.parse("0.02")),), "a test", "", "")
# Kilobytes: some files of many pieces, more of one, most are tiny; together a hundred megabytes. (The emulators serve
# each piece of a file from all of it, so that no file is larger.)
SIZES = (*[24_000] * 2, *[8_500] * 5, *[400] * 20, *[25] * 60) * (MEGABYTES // 100)
SECONDS = 120 + MEGABYTES
# At one second an answer, and at eight at a time, these take minutes.
SLOW_FILES = 2000


@dataclass
class Stores:
    """Two stores: one that holds the data, and one near the machines."""

    source: ObjectStore
    port: int
    environment: dict[str, str]

    def near(self, path: str) -> CheckpointStore:
        return open_arrow_store(gcs_url(self.port, path), {})


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[Stores]:
    key = rsa.generate_private_key(65537, 2048)
    pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()
    # Arrow reads a key wherever no one asked for anonymity; the emulator looks at none.
    account = {"type": "service_account", "client_email": "a@b.iam.gserviceaccount.com", "private_key": pem}
    account |= {"private_key_id": "k", "token_uri": "https://oauth2.googleapis.com/token"}
    file = tmp_path / "account.json"
    file.write_text(json.dumps(account))
    with object_store() as source, gcs_emulator() as port:
        google = {
            "CLOUD_STORAGE_EMULATOR_ENDPOINT": f"http://127.0.0.1:{port}",
            "GOOGLE_APPLICATION_CREDENTIALS": str(file),
        }
        yield Stores(source, port, {**source.environment, **google})


def fill(store: ObjectStore) -> int:
    """The corpus: what differs between files is their beginning, so that most bytes are made once."""
    noise, client, total = os.urandom(max(SIZES) * 1000), store.client, 0
    for number, size in enumerate(SIZES):
        body = f"{number:08d}".encode() + noise[: size * 1000 + number]
        client.put_object(Bucket="bucket-east", Key=f"corpus/shard-{number % 7}/{number}.bin", Body=body)
        total += len(body)
    client.put_object(Bucket="bucket-east", Key="corpus/empty", Body=b"")
    return total


def digests(store: CheckpointStore) -> dict[str, str]:
    found = {}
    for file in store.files():
        digest = hashlib.sha256()
        with store.open(file.path) as reader:
            for offset in range(0, file.bytes, 2**23):
                digest.update(reader.read_at(min(2**23, file.bytes - offset), offset))
        found[file.path] = digest.hexdigest()
    return found


def _cloud() -> dict[str, Any]:
    (near,) = SANDBOX["regions"]
    return {**SANDBOX, "regions": [near, {**near, "name": FAR, "zones": [f"{FAR}-a"]}]}


def _job(name: str) -> dict[str, Any]:
    command = f'echo "$STEPFARE_DATA" > "${{STEPFARE_SANDBOX%/*}}/told-{name}"'
    data = {"uri": URI, "at": f"sandbox/{FAR}", "gib": MEGABYTES * 1e6 / 2**30, "mode": "copy"}
    return job(name, command, machines=1, data=data)


class Night:
    """A site whose data lie far away."""

    def __init__(self, site: Site, stores: Stores) -> None:
        self.site, self.environment = site, {**site.environment, **stores.environment}
        books = BookStore(site.home / "books").sandbox
        stored = books.latest()
        assert stored is not None
        book = books.load(stored)
        self.book = site.folder / "book.parquet"
        write_book(replace(book, tariffs=(*book.tariffs, TARIFF)), self.book)
        site.deploy(clouds={"sandbox": {"regions": {NEAR: {"data_url": f"gs://{BUCKET}/near"}}}})

    def plan(self, name: str) -> Usd:
        """Plan a job with these data; what its egress is to cost."""
        file = self.site.folder / f"{name}.yaml"
        file.write_text(yaml.safe_dump(_job(name)))
        words = ("--book", self.book, "--limits", self.site.folder / "limits.yaml", "--out", self._plan_of(name))
        planned = self.site.run("plan", file, *words, environment=self.environment)
        assert planned.code == 0, planned.err
        plan = plan_from_json(self._plan_of(name).read_text(), "plan.json")
        return Usd.total(move.cost_usd for move in plan.moves)

    def apply(self, name: str) -> tuple[object, ...]:
        jobs = ("--jobs", self.site.folder / f"{name}.yaml")
        return ("apply", self._plan_of(name), "--yes", "--follow", "--book", self.book, *jobs)

    def _plan_of(self, name: str) -> Path:
        return self.site.folder / f"plan-{name}.json"

    def notes(self, what: str) -> list[dict[str, Any]]:
        with self.site.store() as store:
            return [dict(entry.details) for entry in store.journal.entries() if entry.what == what]

    def egress(self) -> list[LedgerEntry]:
        with self.site.store() as store:
            return [entry for entry in store.ledger.entries() if entry.what is CostItem.EGRESS]

    def listed(self) -> list[dict[str, Any]]:
        listed: list[dict[str, Any]] = self.site.run("data", "list", "-o", "json").json["copies"]
        return listed

    def told(self, name: str) -> str:
        return (self.site.folder / f"told-{name}").read_text().strip()


def test_data_are_copied_killed_resumed_verified_metered_and_used_again(
    new_site: NewSite, stores: Stores, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in stores.environment.items():
        monkeypatch.setenv(name, value)
    night = Night(new_site(Template(tmp_path / "planned", [job("other", machines=1)], cloud=_cloud())), stores)
    total = fill(stores.source)
    assert night.plan("first") > Usd(0)
    # Killed when about half of the bytes are there.
    applied = night.site.start(*night.apply("first"), environment=night.environment)
    near = stores.near("near")
    eventually(
        lambda: sum(file.bytes for file in near.files()) > 0.4 * total,
        SECONDS,
        why="for half of the copy",
        pause=MEGABYTES / 1000,
    )
    applied.signal(signal.SIGKILL)
    applied.process.wait(60)
    assert (night.notes("data copied"), night.egress()) == ([], [])
    assert [copy["state"] for copy in night.listed()] == ["in use"]
    assert not any(file.path.endswith("manifest.json") for file in near.files())

    ended = night.site.run(*night.apply("first"), environment=night.environment, seconds=SECONDS)
    assert ended.code == 0, ended.err
    (copied,), (cut,) = night.notes("data copied"), night.notes("data not copied")
    assert cut["why"] == "the copy was interrupted"
    assert 0 < copied["kept"] < total
    # What was not kept was read again, and nothing else; what the killed process had read is metered, too.
    assert copied["bytes"] == total - copied["kept"]
    assert cut["bytes"] >= copied["kept"]
    entries = night.egress()
    assert [entry.quantity for entry in entries] == [Fraction(each["bytes"], 10**9) for each in (cut, copied)]
    assert Usd.total(entry.usd for entry in entries) == Usd.total(
        TARIFF.cost_of(0, each["bytes"], 0) for each in (cut, copied)
    )
    served = stores.source.calls()["served"]
    # What lay in the buffers of the killed process was served as well, and reached nobody.
    assert cut["bytes"] + copied["bytes"] <= served <= cut["bytes"] + copied["bytes"] + 2**27
    (listed,) = night.listed()
    assert (listed["state"], listed["bytes"], listed["files"], listed["team"]) == (
        "whole",
        total,
        len(SIZES) + 1,
        "team-a",
    )
    folder = listed["url"].removeprefix(f"gs://{BUCKET}/")
    copy = stores.near(f"{folder}/files")
    assert digests(copy) == digests(open_arrow_store(URI, stores.environment))
    assert night.told("first") == f"{listed['url']}/files"

    # The second job is not priced for it, and reads the copy.
    assert night.plan("second") == Usd(0)
    ended = night.site.run(*night.apply("second"), environment=night.environment, seconds=SECONDS)
    assert ended.code == 0, ended.err
    assert "nothing had to be copied" in ended.said
    assert night.notes("data copied")[1]["bytes"] == 0
    assert (night.told("second"), night.egress()) == (night.told("first"), entries)
    near.put("other/stays", b"x")
    removed = night.site.run("data", "remove", URI, "--yes", environment=night.environment)
    assert (removed.code, night.listed()) == (0, []), removed.err
    assert [file.path for file in near.files()] == ["other/stays"]


def test_while_data_are_copied_others_apply_look_and_destroy(
    new_site: NewSite, stores: Stores, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The source answers so slowly that the copy outlasts all the other commands; then it is quick."""
    for name, value in stores.environment.items():
        monkeypatch.setenv(name, value)
    short = job("other", "true", machines=1)
    night = Night(new_site(Template(tmp_path / "planned", [short], cloud=_cloud())), stores)
    site, client = night.site, stores.source.client
    for number in range(SLOW_FILES):
        client.put_object(Bucket="bucket-east", Key=f"corpus/{number}.bin", Body=f"{number:08d}".encode())
    for name in ("first", "second"):
        night.plan(name)
    stores.source.trouble(seconds=1.0)
    first = site.start(*night.apply("first"), environment=night.environment)
    eventually(lambda: [copy["state"] for copy in night.listed()] == ["being copied"], 60, why="for a copy")
    second = site.start(*night.apply("second"), environment=night.environment)
    eventually(lambda: "waiting for it" in second.err, 60, why="for who waits")

    other = site.run("apply", site.plan, "--yes", "--follow", environment=night.environment)
    assert other.code == 0, other.err
    shown = site.run("status", "-o", "json", environment=night.environment).json["gangs"]
    assert {gang["job"]: gang["state"] for gang in shown if gang["job"] != "other"} == {
        "first": "planned",
        "second": "planned",
    }
    again = site.run(*night.apply("first")[:-5], *night.apply("first")[-4:], environment=night.environment)
    assert "runs already" in again.said, again.said
    destroyed = site.run("destroy", "second", "--yes", environment=night.environment)
    assert destroyed.code == 0, destroyed.err
    assert "stopped" in second.wait(60).said
    assert night.notes("data copied") == []
    assert night.listed()[0]["state"] == "being copied"
    stores.source.trouble()
    ended = first.wait(SECONDS)
    assert ended.code == 0, ended.err
    (copied,) = night.notes("data copied")
    assert copied["bytes"] == 8 * SLOW_FILES
    (entry,) = night.egress()
    assert entry.quantity == Fraction(8 * SLOW_FILES, 10**9)
    assert night.told("first") == f"{night.listed()[0]['url']}/files"
    with site.store() as store:
        assert {a.job: a.reason for a in store.attempts.find()} == {
            "first": "finished", "second": "stopped", "other": "finished",
        }  # fmt: skip
