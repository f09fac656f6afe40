"""Logins to registries: stated by the job, or given by the machine's identity on each cloud."""

from __future__ import annotations

import json
import stat
from base64 import b64encode
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from router.agent.imds import MetadataClient, NoticeSourceError
from router.agent.registry import (
    RegistryLogin,
    RegistryServices,
    find_login,
    post_request,
    registry_of,
    signed_headers,
)
from tests.support.metadata_service import MetadataService

NOW = datetime(2026, 11, 30, 18, tzinfo=UTC).timestamp()
ECR = "123456789012.dkr.ecr.eu-west-1.amazonaws.com"


@pytest.fixture(scope="module")
def service() -> Iterator[MetadataService]:
    with MetadataService().running() as running:
        yield running


class Registry:
    """Answers posts with one document, and keeps them."""

    def __init__(self, answer: object) -> None:
        self.answer = json.dumps(answer).encode()
        self.asked: list[tuple[str, Mapping[str, str], bytes]] = []

    def post(self, url: str, headers: Mapping[str, str], body: bytes) -> bytes:
        self.asked.append((url, headers, body))
        return self.answer


def services(service: MetadataService, answer: object = None) -> tuple[RegistryServices, Registry]:
    registry = Registry(answer)
    return RegistryServices(MetadataClient(service.url, seconds=5), NOW, registry.post), registry


@pytest.mark.parametrize(
    ("image", "host"),
    [
        ("ubuntu", "docker.io"),
        ("team/train:1", "docker.io"),
        ("localhost/train", "localhost"),
        ("localhost:5000/train", "localhost:5000"),
        (f"{ECR}/team/train@sha256:00", ECR),
    ],
)
def test_the_registry_is_the_first_part_that_is_a_host(image: str, host: str) -> None:
    assert registry_of(image) == host


@pytest.mark.parametrize("prefix", ["STEPFARE_REGISTRY_", "SKYPILOT_DOCKER_"])
def test_what_the_job_states_goes_before_the_machine(service: MetadataService, prefix: str) -> None:
    variables = {f"{prefix}USERNAME": "robot", f"{prefix}PASSWORD": "secret"}
    known, registry = services(service)
    assert find_login(f"{ECR}/train", variables, known) == RegistryLogin(ECR, "robot", "secret")
    assert find_login("team/train", variables, None) == RegistryLogin("https://index.docker.io/v1/", "robot", "secret")
    stated = {**variables, f"{prefix}SERVER": "registry.example.com"}
    assert find_login("registry.example.com/a", stated, None) == RegistryLogin(
        "registry.example.com", "robot", "secret"
    )
    assert registry.asked == []
    assert find_login("team/train", {f"{prefix}USERNAME": "robot"}, None) is None


def test_nobody_logs_in_where_nothing_is_known(service: MetadataService) -> None:
    known, registry = services(service)
    assert find_login(f"{ECR}/train", {}, None) is None
    for image in ("ubuntu", "nvcr.io/nvidia/pytorch:26.03-py3", "public.ecr.aws/hpc-cloud/nccl-tests"):
        assert find_login(image, {}, known) is None
    assert registry.asked == []


def test_a_role_of_ec2_gets_a_token_of_ecr(service: MetadataService) -> None:
    pair = b64encode(b"AWS:twelve-hours").decode()
    known, registry = services(service, {"authorizationData": [{"authorizationToken": pair}]})
    assert find_login(f"{ECR}/team/train:1", {}, known) == RegistryLogin(ECR, "AWS", "twelve-hours")
    ((url, headers, body),) = registry.asked
    assert (url, body) == ("https://api.ecr.eu-west-1.amazonaws.com/", b"{}")
    assert "ASIA-1/20261130/eu-west-1/ecr/aws4_request" in headers["authorization"]


def test_the_signature_is_that_of_the_sdk(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = {"AccessKeyId": "ASIAX", "SecretAccessKey": "s3cr3t/+", "Token": "tok=="}
    content = {"content-type": "application/x-amz-json-1.1", "x-amz-target": "X.Y"}
    ours = signed_headers("api.ecr.eu-west-1.amazonaws.com", "eu-west-1", b"{}", keys, content, NOW)
    request = AWSRequest("POST", "https://api.ecr.eu-west-1.amazonaws.com/", dict(content), b"{}")
    signer = SigV4Auth(Credentials("ASIAX", "s3cr3t/+", "tok=="), "ecr", "eu-west-1")
    monkeypatch.setattr("botocore.auth.get_current_datetime", lambda: datetime.fromtimestamp(NOW, UTC), raising=True)
    signer.add_auth(request)
    assert ours["authorization"] == request.headers["Authorization"]
    assert ours["x-amz-date"] == request.headers["X-Amz-Date"]


@pytest.mark.parametrize("host", ["europe-west4-docker.pkg.dev", "gcr.io", "eu.gcr.io"])
def test_a_service_account_has_an_access_token(service: MetadataService, host: str) -> None:
    known, registry = services(service)
    assert find_login(f"{host}/project/team/train", {}, known) == RegistryLogin(host, "oauth2accesstoken", "ya29.t")
    assert registry.asked == []


def test_a_managed_identity_exchanges_its_token(service: MetadataService) -> None:
    known, registry = services(service, {"refresh_token": "three-hours"})
    login = find_login("example.azurecr.io/train", {}, known)
    assert login == RegistryLogin("example.azurecr.io", "00000000-0000-0000-0000-000000000000", "three-hours")
    ((url, _, body),) = registry.asked
    assert url == "https://example.azurecr.io/oauth2/exchange"
    assert parse_qs(body.decode()) == {
        "grant_type": ["access_token"],
        "service": ["example.azurecr.io"],
        "access_token": ["arm-token"],
    }


@pytest.mark.parametrize(
    ("image", "answer"),
    [
        (f"{ECR}/train", {}),
        (f"{ECR}/train", {"authorizationData": []}),
        (f"{ECR}/train", {"authorizationData": [{"authorizationToken": "%"}]}),
        ("example.azurecr.io/train", {"errors": [{"code": "UNAUTHORIZED"}]}),
        ("example.azurecr.io/train", ["x"]),
    ],
)
def test_an_answer_without_a_token_is_refused(service: MetadataService, image: str, answer: Any) -> None:
    known, _ = services(service, answer)
    with pytest.raises(NoticeSourceError):
        find_login(image, {}, known)


def test_a_machine_without_an_identity_is_said(service: MetadataService) -> None:
    service.machine.faults = [(404, {})]
    known, _ = services(service)
    with pytest.raises(NoticeSourceError, match="HTTP 404, the machine has no identity"):
        find_login("gcr.io/project/train", {}, known)


def test_a_registry_that_is_away_is_said() -> None:
    with pytest.raises(NoticeSourceError, match=r"127\.0\.0\.1:1: "):
        post_request("http://127.0.0.1:1/", {}, b"")


def test_a_login_is_for_its_user_alone_and_not_shown(tmp_path: Path) -> None:
    login = RegistryLogin("r.example.com", "robot", "pass-of-the-robot")
    login.write(tmp_path)
    assert stat.S_IMODE((tmp_path / "config.json").stat().st_mode) == 0o600
    assert "pass-of-the-robot" not in repr(login)
