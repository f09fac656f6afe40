"""The audit log names the account of the real user id, and no name that the environment claims."""

from __future__ import annotations

import os
import pwd
import socket

import pytest

from router.cli.site_options import acting_user

HOST = socket.gethostname()


@pytest.fixture(autouse=True)
def claims(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME", "SUDO_USER"):
        monkeypatch.setenv(name, "ana")


@pytest.mark.parametrize("account", ["nobody", "daemon"])
def test_an_account_is_that_of_the_real_user_id(monkeypatch: pytest.MonkeyPatch, account: str) -> None:
    monkeypatch.setattr(os, "getuid", lambda: pwd.getpwnam(account).pw_uid)
    assert acting_user() == f"{account}@{HOST}"


def test_a_user_id_without_an_account_is_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 987_654_321)
    assert acting_user() == f"987654321@{HOST}"


def test_root_is_who_ran_sudo(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 0)
    assert acting_user() == f"ana@{HOST}"
    monkeypatch.delenv("SUDO_USER")
    assert acting_user() == f"{pwd.getpwuid(0).pw_name}@{HOST}"
