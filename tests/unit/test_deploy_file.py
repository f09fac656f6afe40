"""The deploy file: what it says, and what is wrong in it, where, and what to write instead."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml

from pricing.places import PROVISIONABLE_CLOUDS
from pricing.problems import InvalidInputError
from router.agent.protocol import PREFLIGHTS
from router.config.settings_files import deploy_path, load_deploy
from router.deploy.cloud_settings import CloudDeploy
from router.deploy.console_settings import OidcEntry
from router.deploy.deploy_settings import Deploy, SecretsEntry
from router.deploy.notify_settings import EventKind, NotifyEntry, resolve_reference
from terraform.spec import Host
from tests.support.repository import ROOT

EXAMPLE = ROOT / "examples" / "pool" / "deploy.yaml"
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
CANARY = "canary-0d9f31"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def read(text: str) -> Deploy:
    Path("deploy.yaml").write_text(text, encoding="utf-8")
    return load_deploy(Path("deploy.yaml"), named=True)


def test_the_example_shows_every_field_once() -> None:
    deploy = load_deploy(EXAMPLE, named=True)
    written: dict[str, Any] = yaml.safe_load(EXAMPLE.read_text(encoding="utf-8"))
    assert set(written) == set(Deploy.model_fields)
    shown = {name for cloud in written["clouds"].values() for name in cloud}
    shown |= {
        name for cloud in written["clouds"].values() for region in cloud.get("regions", {}).values() for name in region
    }
    assert shown == set(CloudDeploy.model_fields)
    assert set(deploy.clouds) == set(written["clouds"]) == PROVISIONABLE_CLOUDS
    assert {name for entry in written["secrets"].values() for name in entry} == set(SecretsEntry.model_fields)
    for section in ("coordinator", "timeouts", "backend", "console"):
        assert set(written[section]) == set(type(getattr(deploy, section)).model_fields)
    assert set(written["console"]["oidc"]) == set(OidcEntry.model_fields)


def test_an_empty_file_and_none_at_all_are_the_defaults(folder: Path) -> None:
    assert read("") == read("# nothing\n") == Deploy() == load_deploy(folder / "none.yaml", named=False)
    assert read("clouds:\ncoordinator:\ntimeouts:\n") == Deploy()
    deploy = Deploy()
    assert (deploy.coordinator.host, deploy.coordinator.port) == ("127.0.0.1", 0)
    assert (deploy.backend.kind, deploy.state, deploy.engine) == ("local", None, None)
    assert deploy.cloud("aws", "us-east-1") == CloudDeploy()


def test_a_cloud_with_nothing_after_it_is_named_all_the_same(folder: Path) -> None:
    assert read("clouds:\n  aws:\n  gcp: {}\n").clouds == {"aws": CloudDeploy(), "gcp": CloudDeploy()}


def test_what_a_region_says_takes_the_place_of_what_the_cloud_says(folder: Path) -> None:
    deploy = read(
        "clouds: {gcp: {image: all, zone: z, checkpoint_bucket: b, disk_gib: 300,"
        " regions: {r1: {image: special}, r2: {zone: r2-a, network: {id: n, subnets: {'': s}}}}}}"
    )
    here = [deploy.cloud("gcp", region) for region in ("r1", "r2", "r3")]
    assert [(c.image, c.zone, c.checkpoint_bucket, c.disk_gib) for c in here] == [
        ("special", "z", "b", 300),
        ("all", "r2-a", "b", 300),
        ("all", "z", "b", 300),
    ]
    assert [c.network is not None for c in here] == [False, True, False]


def test_the_one_variable_may_stand_alone(folder: Path) -> None:
    assert read("pass_environment: COMPANY_PROXY").pass_environment == ("COMPANY_PROXY",)


@pytest.mark.parametrize("listen", ["0.0.0.0:7433", "[::1]:80", "localhost:0", "127.0.0.1:65535"])
def test_addresses_to_listen_on(folder: Path, listen: str) -> None:
    entry = read(f'coordinator: {{listen: "{listen}"}}').coordinator
    assert f"{entry.host}:{entry.port}" == listen


@pytest.mark.parametrize(
    "url",
    [
        "https://a.example.com",
        "https://a.example.com:7433/x",
        "http://127.0.0.1:1",
        "http://localhost:1",
        "http://[::1]:1",
    ],
)
def test_addresses_at_which_machines_call(folder: Path, url: str) -> None:
    assert read(f'coordinator: {{url: "{url}"}}').coordinator.url == url


BAD = {
    "unknown field": ("engin: tofu", "1:1", "engin", "is no field of a deploy file", "did you mean engine?"),
    "field of nothing like it": ("banana: 1", "1:1", "banana", "is no field of a deploy file", "stepfare schema"),
    "no such policy": ("policy: uniform-progres", "1:9", "policy", "is no policy", "did you mean uniform-progress?"),
    "a list of policies": ("policy: [greedy]", "1:9", "policy", "greedy", ""),
    "field of timeouts": (
        "timeouts: {rendezvos: 5m}", "1:12", "timeouts.rendezvos", "no such field", "did you mean rendezvous?",
    ),
    "field that is gone": ("timeouts: {meet: 5m}", "1:12", "timeouts.meet", "no such field", ""),
    "field of a cloud": (
        "clouds:\n  aws:\n    imge: x", "3:5", "clouds.aws.imge", "clouds.aws has no such field", "did you mean image?",
    ),
    "a list": ("- aws", "1:1", "", "not a list", "stepfare schema deploy"),
    "a text": ("aws", "1:1", "", "not 'aws'", "stepfare schema deploy"),
    "two documents": ("parallel: 1\n---\nparallel: 2", "3:1", "", "one document", "---"),
    "cloud": ("clouds: {awz: {}}", "1:15", "clouds.awz", "no machines can be made there", "did you mean aws?"),
    "cloud without a module": ("clouds: {lambda: {}}", "1:18", "clouds.lambda", "no machines can be made", "aws"),
    "clouds as a list": ("clouds: [aws]", "1:9", "clouds", "a list is not a mapping of clouds", "clouds: {aws: {}}"),
    "no time": ("timeouts: {apply: 0s}", "1:19", "timeouts.apply", "more than 0", "15m"),
    "too long": (
        "timeouts: {rendezvous: 31d}", "1:24", "timeouts.rendezvous", "at most 30 days", "15m",
    ),
    "no unit": ("timeouts: {lost: 5}", "1:18", "timeouts.lost", "no unit of time", "5m"),
    "parallel": ("parallel: 65", "1:11", "parallel", "at most 64", ""),
    "parallel nothing": ("parallel: 0", "1:11", "parallel", "more than 0", ""),
    "disk": ("clouds: {aws: {disk_gib: 9}}", "1:26", "clouds.aws.disk_gib", "at least 10", ""),
    "listen": ("coordinator: {listen: localhost}", "1:23", "coordinator.listen", "no address with a port", "7433"),
    "port": ("coordinator: {listen: 'a:70000'}", "1:23", "coordinator.listen", "no address with a port", "7433"),
    "url": (
        "coordinator: {url: stepfare.example.com}", "1:20", "coordinator.url", "not the URL of a service", "https://",
    ),
    "clear": ("coordinator: {url: 'http://a.example.com'}", "1:20", "coordinator.url", "in the clear", "https://"),
    "clear, nearly loopback": (
        "coordinator: {url: 'http://127.0.0.1.example.com'}", "1:20", "coordinator.url", "in the clear", "https://",
    ),
    "port of the url": ("coordinator: {url: 'https://a:99999'}", "1:20", "coordinator.url", "no URL", "https://"),
    "user in the url": (
        "coordinator: {url: 'https://u@a'}", "1:20", "coordinator.url", "more than address", "https://",
    ),
    "certificate": ("coordinator: {certificate: /a}", "1:28", "coordinator.certificate", "belong together", "both"),
    "key": ("coordinator: {key: /a}", "1:14", "coordinator.certificate", "belong together", "both"),
    "backend": ("backend: {kind: swift}", "1:10", "backend", "'swift' is unknown; one of", "developer.hashicorp.com"),
    "backend for all attempts": (
        "backend: {kind: gcs, settings: {bucket: b, prefix: p}}", "1:10", "backend", "must contain {attempt}", "",
    ),
    "backend without a lock": (
        "backend: {kind: s3, settings: {key: '{attempt}'}}", "1:10", "backend",
        "locks nothing without use_lockfile", "",
    ),
    "reservation": (
        "clouds: {aws: {reservations: [{id: cr-1, region: r}]}}", "1:31", "clouds.aws.reservations[0].instance_type",
        "is missing", "instance_type",
    ),
    "network": (
        "clouds: {aws: {network: {id: vpc-1, subnets: {}}}}", "1:46", "clouds.aws.network.subnets", "is empty", "",
    ),
    "host": (
        "clouds: {static: {hosts: {'-x': {}}}}", "1:33", "clouds.static.hosts.-x", "neither a name nor an IP", "port",
    ),
    "user of a host": (
        "clouds: {static: {hosts: {a: {user: 'x y'}}}}", "1:30", "clouds.static.hosts.a",
        "not the name of a user", "user",
    ),
    "port of a host": (
        "clouds: {static: {hosts: {a: {port: 70000}}}}", "1:30", "clouds.static.hosts.a", "not 1 to 65535", "port",
    ),
    "login key": (
        "clouds: {static: {private_key_path: id_rsa}}", "1:37", "clouds.static.private_key_path",
        "no absolute path", "~/",
    ),
    "scratch": (
        "clouds: {aws: {local_nvme: scratch}}", "1:28", "clouds.aws.local_nvme", "no absolute path", "/mnt/scratch",
    ),
    "scratch that docker takes for two": (
        "clouds: {aws: {local_nvme: '/a:/etc'}}", "1:28", "clouds.aws.local_nvme", "no absolute path", "/mnt/scratch",
    ),
    "tag of our own": (
        "clouds: {aws: {tags: {team: a}}}", "1:29", "clouds.aws.tags.team", "stepfare writes itself", "another name",
    ),
    "tag of a cloud": ("tags: {'aws:team': a}", "1:7", "tags", "clouds and modules keep that name", "owner"),
    "tags of two levels that are one label": (
        "tags: {Owner: a}\nteam_tags: {b: {owner: c}}", "1:1", "", "one label on Google Cloud: owner", "owner",
    ),
    "not yaml": ("clouds: {aws: ", "2:1", "", "is not YAML", "brackets"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_what_is_wrong_is_named_with_place_field_reason_and_remedy(folder: Path, case: str) -> None:
    text, place, field, what, remedy = BAD[case]
    with pytest.raises(InvalidInputError) as caught:
        read(text)
    (problem,) = caught.value.problems
    assert (problem.where, problem.field) == (f"deploy.yaml:{place}", field)
    assert what in problem.what
    assert remedy in problem.remedy


@pytest.mark.parametrize(
    "text",
    [
        f"state: postgresql://stepfare:{CANARY}@db.example.com/stepfare",
        f"coordinator: {{url: 'https://u:{CANARY}@a.example.com'}}",
        f"clouds: {{azure: {{ssh_public_key: '-----BEGIN OPENSSH PRIVATE KEY----- {CANARY}'}}}}",
        f"clouds: {{static: {{hosts: {{a: {{host_key: '{CANARY}'}}}}}}}}",
        f"backend: {{kind: pg, settings: {{schema_name: '{{attempt}}', conn_str: 'postgres://u:{CANARY}@db'}}}}",
        f"backend: {{kind: http, settings: {{address: 'https://u:{CANARY}@a/{{attempt}}', lock_address: 'https://a'}}}}",
    ],
)
def test_a_secret_is_refused_and_not_shown(folder: Path, text: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        read(text)
    (problem,) = caught.value.problems
    assert problem.where.startswith("deploy.yaml:1:")
    assert problem.remedy
    assert CANARY not in str(caught.value)


def test_everything_that_is_wrong_is_said_at_once(folder: Path) -> None:
    with pytest.raises(InvalidInputError) as caught:
        read("parallel: 0\nclouds:\n  awz: {}\ncoordinator: {listen: x}\n")
    assert {problem.field for problem in caught.value.problems} == {"parallel", "clouds.awz", "coordinator.listen"}


def test_a_file_that_somebody_named_has_to_be_there(folder: Path) -> None:
    with pytest.raises(InvalidInputError, match="no such file"):
        load_deploy(folder / "none.yaml", named=True)


def test_where_the_file_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STEPFARE_DEPLOY", raising=False)
    assert deploy_path(None, tmp_path) == (tmp_path / "deploy.yaml", False)
    monkeypatch.setenv("STEPFARE_DEPLOY", "/srv/deploy.yaml")
    assert deploy_path(None, tmp_path) == (Path("/srv/deploy.yaml"), True)
    assert deploy_path(Path("mine.yaml"), tmp_path) == (Path("mine.yaml"), True)
    monkeypatch.setenv("HOME", "/srv/ada")
    assert deploy_path(Path("~/d.yaml"), tmp_path) == (Path("/srv/ada/d.yaml"), True)


def test_public_keys_and_hosts_as_they_are_written(folder: Path) -> None:
    deploy = read(
        f"clouds: {{azure: {{ssh_public_key: '{KEY} ada@example.com'}}, static: {{hosts: {{"
        f"'fd00::1': {{host_key: '{KEY}'}}, h1.example.com: {{user: train, port: 2222}}}}}}}}"
    )
    hosts = deploy.clouds["static"].hosts
    assert Host("fd00::1", host_key=hosts["fd00::1"].host_key).host_key == KEY
    assert (hosts["h1.example.com"].port, hosts["h1.example.com"].user) == (2222, "train")


def test_waits_are_durations(folder: Path) -> None:
    timeouts = read("timeouts: {apply: 1h30m, start_early: 0s, shortage: 0s}").timeouts
    assert (timeouts.apply, timeouts.start_early, timeouts.shortage, timeouts.lost) == (
        timedelta(hours=1.5),
        timedelta(0),
        timedelta(0),
        timedelta(minutes=5),
    )


def test_it_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="frozen"):
        Deploy().parallel = 5


def test_tags_of_an_organisation_are_by_team_and_cloud(folder: Path) -> None:
    deploy = read(
        "tags: {owner: a, env: all}\nteam_tags: {b: {owner: b, Code: R-1}}\nclouds: {aws: {tags: {env: aws}}, gcp: {}}"
    )
    assert deploy.tags_of("b", "aws") == {"owner": "b", "env": "aws", "Code": "R-1"}
    assert deploy.tags_of("c", "gcp") == deploy.tags_of("c", "azure") == {"owner": "a", "env": "all"}


def test_the_words_of_preflight_are_the_agents() -> None:
    assert get_args(Deploy.model_fields["preflight"].annotation) == PREFLIGHTS


SECRET_WORD = "canary-51c0aa"


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def refused(text: str) -> str:
    with pytest.raises(InvalidInputError) as caught:
        read(text)
    return str(caught.value)


def test_left_out_nobody_is_told() -> None:
    assert read("").notify == read("notify:\n").notify == NotifyEntry()
    assert (Deploy().notify.urls, set(Deploy().notify.events)) == ((), set(EventKind))
    assert Deploy().coordinator.metrics_token is None


def test_addresses_are_looked_up() -> None:
    notify = read("notify: {urls: [env:SLACK_URL, env:MAIL], events: late}").notify
    assert notify.events == (EventKind.LATE,)
    assert notify.addresses({"SLACK_URL": "slack://x", "MAIL": " mailto://y\n"}) == ("slack://x", "mailto://y")
    with pytest.raises(InvalidInputError, match=r"notify.urls\[1\].*MAIL"):
        notify.addresses({"SLACK_URL": SECRET_WORD, "MAIL": ""})


@pytest.mark.parametrize("url", [f"slack://{SECRET_WORD}/b/c", f"env:{SECRET_WORD}", "env:", f"env:A B{SECRET_WORD}"])
def test_an_address_in_the_file_is_refused_and_not_shown(url: str) -> None:
    text = refused(f"notify: {{urls: ['{url}']}}")
    assert "env:NAME" in text
    assert SECRET_WORD not in text
    text = refused(f"coordinator: {{metrics_token: '{url}'}}")
    assert SECRET_WORD not in text


def test_what_can_be_told_of_is_named() -> None:
    assert "failed" in refused("notify: {events: [failure]}")


def test_a_token_is_looked_up() -> None:
    assert resolve_reference("env:T", {"T": "t-1"}, "coordinator.metrics_token") == "t-1"


@pytest.mark.parametrize(
    "url", ["https://sqs.us-east-1.amazonaws.com/123456789012/stepfare-notices", "http://127.0.0.1:4566/123456789012/q"]
)
def test_queues(url: str) -> None:
    assert read(f"clouds: {{aws: {{interruption_queue: '{url}'}}}}").clouds["aws"].interruption_queue == url


@pytest.mark.parametrize("url", ["q", "https://sqs.us-east-1.amazonaws.com/1/q", "https://h/123456789012/q.fifo"])
def test_what_is_no_queue(url: str) -> None:
    assert "SQS" in refused(f"clouds: {{aws: {{interruption_queue: '{url}'}}}}")


def test_only_one_cloud_has_queues() -> None:
    text = refused("clouds: {gcp: {interruption_queue: 'https://sqs.us-east-1.amazonaws.com/123456789012/q'}}")
    assert "only aws" in text


def test_queues_by_region() -> None:
    url = "https://sqs.eu-west-1.amazonaws.com/123456789012/stepfare-q"
    aws = read(f"clouds: {{aws: {{regions: {{eu-west-1: {{interruption_queue: '{url}'}}, us-east-1: {{}}}}}}}}").clouds[
        "aws"
    ]
    assert aws.queues == {"eu-west-1": url}
    assert CloudDeploy().queues == {}
    text = refused(f"clouds: {{gcp: {{regions: {{r: {{interruption_queue: '{url}'}}}}}}}}")
    assert "only aws" in text
