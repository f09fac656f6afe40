"""Trainings that come to a bad end: each ends as the table says, within what it may cost, with its ledger whole.

Trainings that stand still are in test_standstill.py.
"""

from __future__ import annotations

import json
import shlex
import signal
import socket
import sys
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.support.bounded_costs import excesses
from tests.support.busy import eventually
from tests.support.deployed import REGION, SANDBOX, WAITS, NewSite, Ran, Site, Template, planned
from tests.support.recovered import TIMEOUTS as WATCHED_TIMEOUTS
from tests.support.recovered import (
    attempts,
    lasting,
    set_off,
    sped_up,
    stop,
    training,
    until_finished,
    until_step,
    watched,
)
from tests.support.seen_machines import settled
from tests.support.terraform_runs import needs_engine

pytestmark = [needs_engine, pytest.mark.slow]

SPEED = 60
# Pools are avoided for as long as a test takes, on the clock of the cloud.
TIMEOUTS = {"rendezvous": "30m", "lost": "1h", "quarantine": "6h", "shortage": "6h"}
SECRET = "canary-of-the-job-41c7"
IMAGE = "registry.example.com/team/train:1"
(HERE,) = SANDBOX["regions"]
# A region of data alone. They lie where nobody listens: PORT is put in for each case.
CLOUD = {**SANDBOX, "regions": [HERE, {**HERE, "name": "sandbox-west", "zones": ["sandbox-west-a"]}]}
ELSEWHERE = "sandbox/sandbox-west"
STREAM = {"uri": "http://127.0.0.1:PORT/corpus", "at": ELSEWHERE, "gib": 0, "mode": "stream"}
COPY = {"uri": "s3://corpus/tokens?endpoint_override=127.0.0.1:PORT&scheme=http", "at": ELSEWHERE, "gib": 0}
NEAR = {"sandbox": {"regions": {REGION: {"data_url": "s3://near/x?endpoint_override=127.0.0.1:PORT&scheme=http"}}}}
READ = shlex.join([sys.executable, "-c", "import os, urllib.request as r; r.urlopen(os.environ['STEPFARE_DATA'])"])
# Of two ranks, one has the broken machine, and the other loses its peer.
ECC = (
    'sick="${STEPFARE_SANDBOX%/*}/sick"; if [ "$NODE_RANK" = 0 ]; then '
    'echo "RuntimeError: CUDA error: uncorrectable ECC error encountered"; echo >"$sick"; else '
    'until [ -e "$sick" ]; do sleep 0.05; done; echo "ncclRemoteError: remote process exited"; sleep 0.2; fi; exit 1'
)


def once(command: str) -> str:
    """A command that goes wrong in the first gang, on all of its ranks, and is fine in the next one."""
    return (
        'first="${STEPFARE_SANDBOX%/*}/first"; mine="$first-$STEPFARE_ATTEMPT-$NODE_RANK"; '
        'echo "$STEPFARE_ATTEMPT" >"$mine"; ln "$mine" "$first" 2>/dev/null; '
        '[ "$(cat "$first")" = "$STEPFARE_ATTEMPT" ] || exit 0; '
        f"{command}"
    )


def pulling(image: str, words: str) -> str:
    """A stand-in for docker that pulls no image, and says so as the real one does."""
    return f"""#!/bin/sh
case "$*" in
info*) echo '{{"runc": {{}}}}' ;;
*"pull {image}") echo "Error response from daemon: {words}" >&2; exit 1 ;;
*) exit 99 ;;
esac
"""


@dataclass(frozen=True)
class BadEnd:
    """One way to go wrong, and the end that it is to have.

    ``reasons`` are those of the attempts, in order, and ``zones`` how many they were in; ``says`` is what a person
    reads of the cause, ``code`` how `apply --follow` ends. ``job`` and ``run`` belong to the job file, ``deploy`` to
    the deploy file; ``docker`` is the program of that name on the machines. ``margin`` is what the settings of the case
    let each gang last beyond what was agreed.
    """

    command: str
    reasons: tuple[str, ...]
    says: tuple[str, ...]
    code: int = 5
    zones: int = 1
    machines: int = 1
    job: dict[str, Any] = field(default_factory=dict)
    run: dict[str, Any] = field(default_factory=dict)
    deploy: dict[str, Any] = field(default_factory=dict)
    docker: str = ""
    margin: timedelta = timedelta(0)

    def at(self, port: int) -> BadEnd:
        job, deploy, says = json.loads(json.dumps([self.job, self.deploy, self.says]).replace("PORT", str(port)))
        return replace(self, job=job, deploy=deploy, says=tuple(says))


ENDS = {
    "a machine with an ECC error, then exit 1": BadEnd(
        once(ECC), ("lost", "finished"), ("uncorrectable ECC error",), code=0, zones=2, machines=2
    ),
    "SIGKILL that nothing explains": BadEnd(
        "sh -c 'kill -9 $$'; exit $?", ("failed", "failed"), ("exit code 137",), job={"retries": 1}
    ),
    "SIGKILL, and the job is not to be started again": BadEnd(
        "sh -c 'kill -9 $$'; exit $?", ("failed",), ("exit code 137",), job={"retries": 0}
    ),
    "data that are streamed from a store that is away": BadEnd(
        READ,
        ("failed", "failed"),
        ("Connection refused",),
        job={"data": STREAM},
        deploy={"timeouts": {"max_crashes": 2}},
    ),
    "data that are streamed from a store that no machine reaches": BadEnd(
        READ,
        ("unhealthy",) * 3,
        ("data: 127.0.0.1:PORT: Connection refused",),
        zones=3,
        job={"data": STREAM},
        deploy={"preflight": "require"},
    ),
    "data that are to be copied from a store that is away": BadEnd(
        "true",
        ("finished",),
        (
            "data are read from s3://corpus/tokens, not copied: the time was over; s3://corpus/tokens: ",
            "Could not connect",
        ),
        code=0,
        job={"data": COPY},
        deploy={"timeouts": {"data_copy": "20s"}, "clouds": NEAR},
    ),
    "an image that the registry does not have": BadEnd(
        "true",
        ("setup",),
        ("manifest unknown",),
        run={"image": IMAGE},
        docker=pulling(IMAGE, f"manifest for {IMAGE} not found: manifest unknown: manifest unknown"),
    ),
    "an image that the registry refuses": BadEnd(
        "true",
        ("credentials",),
        code=7,
        says=("pull access denied", "give the job's team the right to read it"),
        run={"image": IMAGE},
        docker=pulling(IMAGE, "pull access denied for team/train: denied: requested access to the resource is denied"),
    ),
}


@pytest.fixture
def port() -> Iterator[int]:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


def assert_ended(site: Site, end: BadEnd, ran: Ran, *secrets: str, speed: int = 1) -> None:
    """Compare the end of an order with the table, and its cost with what was agreed."""
    found = attempts(site)
    with site.store() as store:
        zones = {node.zone for one in found for node in store.attempts.nodes(one.id)}
    assert (ran.code, tuple(one.reason for one in found)) == (end.code, end.reasons), ran.said
    assert len(zones) == end.zones
    assert [words for words in end.says if words not in ran.said] == [], ran.said
    assert list(excesses(site, end.margin, *secrets, speed=speed)) == []


@pytest.mark.parametrize("name", ENDS)
def test_a_bad_end_is_named_and_bounded(new_site: NewSite, tmp_path: Path, port: int, name: str) -> None:
    """The clock of the cloud runs sixty times as fast as life: seconds that a gang is left too long cost as minutes."""
    end: BadEnd = ENDS[name].at(port)
    login = {"STEPFARE_REGISTRY_USERNAME": "robot", "STEPFARE_REGISTRY_PASSWORD": "secret:env:STEPFARE_JOB_KEY"}
    run = {"env": {"KEY": "secret:env:STEPFARE_JOB_KEY", **login}, **end.run}
    command = f"echo key $KEY; {end.command}"
    job = lasting("train", command, 40, 0.05, end.machines, startup="1m", run=run, **end.job)
    site = new_site(Template(tmp_path / "planned", [job], cloud=CLOUD))
    site.deploy(**{**end.deploy, "timeouts": {**TIMEOUTS, **end.deploy.get("timeouts", {})}})
    if end.docker:
        (site.folder / "bin" / "docker").write_text(end.docker)
        (site.folder / "bin" / "docker").chmod(0o755)
    keys = {"STEPFARE_JOB_KEY": SECRET, "AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_REGION": "east"}
    environment = {**sped_up(site, SPEED), **keys}
    ran = site.run(*follow(site), environment=environment, seconds=180)
    assert_ended(site, end, ran, SECRET, b64encode(f"robot:{SECRET}".encode()).decode(), speed=SPEED)


def follow(site: Site) -> tuple[object, ...]:
    return ("apply", site.plan, "--yes", "--follow", "--limits", site.folder / "limits.yaml")


def test_a_coordinator_that_is_gone_for_good_ends_the_training_and_its_machines(new_site: NewSite, base: Path) -> None:
    lifetime = {"unheard": "5s", "plan_times": 1}
    job = lasting("train", once(WAITS), 20, 0.05, 2, startup="1s", market={"spot": "never"})
    site = new_site(planned(base, "orphaned", job))
    watcher = watched(site, lifetime=lifetime)
    set_off(site)
    eventually(lambda: all(node.agent == "running" for node in nodes(site)), 30, why="for both ranks")
    (attempt,) = attempts(site)
    watcher.process.kill()
    watcher.process.wait()
    assert "nobody watches running gangs, which cost money: train" in site.run("status").err
    eventually(lambda: not settled(site.state), 60, why="for the machines to end")
    notes = [file.read_text() for file in (site.home / "runs" / attempt.directory).rglob("agent.log")]
    assert ["the training is to save and end: no coordinator answered" in text for text in notes] == [True] * 2
    assert attempts(site)[0].phase.is_up
    # Whoever looks after it again finds that the machines are gone, and the job goes on elsewhere.
    watcher = watched(site, lifetime=lifetime)
    until_finished(site)
    ran = stop(watcher)
    assert_ended(site, BadEnd(WAITS, ("lost", "finished"), ("was lost",), code=130), ran)


def test_a_laptop_that_was_closed_leaves_no_machine_and_goes_on_when_it_is_opened(
    new_site: NewSite, base: Path
) -> None:
    site = new_site(planned(base, "closed", training(40, every=20, machines=2)))
    site.deploy(timeouts=WATCHED_TIMEOUTS, lifetime={"unheard": "5s"})
    laptop = site.start(*follow(site))
    until_step(site, 5)
    laptop.signal(signal.SIGSTOP)
    until_step(site, 40)
    assert settled(site.state)
    eventually(lambda: not settled(site.state), 90, why="for the machines to end")
    laptop.signal(signal.SIGCONT)
    ran = laptop.wait(120)
    # The word that the training finished may lie unread, or be lost: then nothing is left to do for another gang.
    reasons = tuple(one.reason for one in attempts(site))
    assert reasons in (("finished",), ("lost", "finished")), ran.said
    assert_ended(site, BadEnd("", reasons, ("finished",), code=0, zones=len(reasons)), ran)


def nodes(site: Site) -> tuple[Any, ...]:
    """The machines of the first attempt."""
    with site.store() as store:
        return store.attempts.nodes(attempts(site)[0].id)
