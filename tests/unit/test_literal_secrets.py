"""Values of `env` that look like secrets are warned of; references and harmless settings are not."""

from __future__ import annotations

import pytest

from router.jobs.spec import find_literal_secrets

KEY = "AKIA" + "IOSFODNN7EXAMPLE"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("HF_TOKEN", "abc"),
        ("WANDB_API_KEY", "0" * 40),
        ("db_password", "x"),
        ("AWS_SECRET_ACCESS_KEY", "x"),
        ("NOTE", f"key {KEY}"),
        ("X", "hf_" + "a" * 34),
        ("URL", "postgresql://ana:pw@db/x"),
        ("PEM", "-----BEGIN EC PRIVATE KEY-----\n..."),
    ],
)
def test_what_looks_like_a_secret(name: str, value: str) -> None:
    assert list(find_literal_secrets([("A", "1"), (name, value)])) == [name]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("HF_TOKEN", "secret:env:STEPFARE_JOB_HF_TOKEN"),
        ("HF_TOKEN", ""),
        ("TOKENIZERS_PARALLELISM", "false"),
        ("MAX_TOKENS", "4096"),
        ("GOOGLE_APPLICATION_CREDENTIALS", "/etc/key.json"),
        ("URL", "https://example.com/a@b"),
        ("NCCL_DEBUG", "INFO"),
    ],
)
def test_what_does_not(name: str, value: str) -> None:
    assert list(find_literal_secrets([(name, value)])) == []
