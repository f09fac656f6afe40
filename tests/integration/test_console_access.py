"""Sign-in and the guard of the console: tokens, sessions, forged requests, hosts, rates, sizes."""

from __future__ import annotations

import hmac
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from router.console.guard import HEADERS, LARGEST_BODY, host_name
from router.console.sign_in.sign_in import local_path, make_link
from router.state.access_tokens import LONGEST_SECRET, NewToken, TokenKind
from tests.support.console_access import PAGE, SignInConsole, bearer, sign_in_console


@pytest.fixture
def console(tmp_path: Path) -> Iterator[SignInConsole]:
    with sign_in_console(tmp_path) as opened:
        yield opened


def test_a_token_is_good_until_it_expires_or_is_revoked(console: SignInConsole) -> None:
    secret, record = console.token(days=1)
    client = console.client()
    assert client.get("/tonight", headers=bearer(secret)).status_code == 404
    console.clock.move(hours=23)
    assert client.get("/tonight", headers=bearer(secret)).status_code == 404
    console.clock.move(hours=1)
    assert client.get("/tonight", headers=bearer(secret)).status_code == 401
    other, record = console.token()
    assert client.get("/tonight", headers=bearer(other)).status_code == 404
    console.context.store.access_tokens.revoke(record.id, console.clock.now)
    console.clock.move(seconds=1)
    assert client.get("/tonight", headers=bearer(other)).status_code == 401


def test_what_is_no_token_of_ours_lets_nobody_in(console: SignInConsole) -> None:
    secret, record = console.token()
    session, _ = console.context.store.access_tokens.make(
        NewToken(TokenKind.SESSION, "ana", ("admin",), record.expires_at), "ana", console.clock.now
    )
    link = make_link(console.context.store, "ana", console.clock.now)
    changed = secret[:-1] + ("A" if secret[-1] != "A" else "B")
    wrong = (secret[:-1], secret + "x", changed, "", "x" * 100_000, "x" * LONGEST_SECRET, record.digest, session, link)
    client = console.client()
    for credentials in (*(f"Bearer {text}" for text in wrong), secret, f"Basic {secret}", f"Bearer{secret}"):
        refused = console.client(address=str(hash(credentials))).get("/tonight", headers={"Authorization": credentials})
        assert refused.status_code == 401
        assert refused.headers["WWW-Authenticate"].startswith("Bearer")
    client.cookies.set("stepfare_session", secret)
    assert client.get("/tonight").status_code == 401


def test_a_wrong_token_is_not_helped_by_a_good_cookie(console: SignInConsole) -> None:
    client, _ = console.signed_in()
    assert client.get("/tonight").status_code == 404
    assert client.get("/tonight", headers=bearer("stepfare_wrong")).status_code == 401


def test_a_scope_confines_a_token(console: SignInConsole) -> None:
    secret, _ = console.token(grants=["admin"], scopes=["quotes:make"])
    refused = console.client().get("/tonight", headers=bearer(secret))
    assert refused.status_code == 403
    assert "plans:read" in refused.json()["error"]["message"]


def test_digests_are_compared_in_constant_time(console: SignInConsole, monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[Any, Any]] = []
    real = hmac.compare_digest

    def counted(one: Any, other: Any) -> bool:
        compared.append((one, other))
        return bool(real(one, other))

    monkeypatch.setattr(hmac, "compare_digest", counted)
    secret, record = console.token()
    assert console.client().get("/tonight", headers=bearer(secret)).status_code == 404
    assert (record.digest, record.digest) in compared
    client, csrf = console.signed_in()
    compared.clear()
    assert client.post("/deed", data={"csrf_token": "wrong"}).status_code == 403
    assert (b"wrong", csrf.encode()) in compared


def test_browsers_are_led_to_sign_in_and_back(console: SignInConsole) -> None:
    client = console.client()
    led = client.get("/plans/plan-1234?a=b", headers=PAGE)
    assert (led.status_code, led.headers["Location"]) == (303, "/login?next=/plans/plan-1234%3Fa%3Db")
    odd = client.get("/plans/a%20%C3%A9%2F%3F?%0d%0a", headers=PAGE)
    assert odd.headers["Location"] == "/login?next=/plans/a%2520%25C3%25A9%252F%253F%3F%250d%250a"
    form = client.get(led.headers["Location"], headers=PAGE)
    assert form.status_code == 200
    assert 'name="next" value="/plans/plan-1234?a=b"' in form.text
    assert "<style" not in form.text
    secret, _ = console.token()
    back = client.post("/login", data={"token": f" {secret}\n", "next": "/plans/plan-1234?a=b"})
    assert (back.status_code, back.headers["Location"]) == (303, "/plans/plan-1234?a=b")
    cookie = back.headers["Set-Cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert "Secure" not in cookie
    assert "Max-Age=43200" in cookie


def test_over_https_cookies_are_of_this_host_alone(tmp_path: Path) -> None:
    with sign_in_console(tmp_path, hosts=["fare.example.com"], secure=True) as console:
        client = console.client(url="https://fare.example.com")
        signed = client.post("/login", data={"token": console.token()[0]})
        assert signed.headers["Set-Cookie"].startswith("__Host-stepfare_session=")
        assert "Secure" in signed.headers["Set-Cookie"]
        assert signed.headers["Strict-Transport-Security"]
        assert client.get("/tonight").status_code == 404
        # The plain name, which a page over http could set, counts for nothing.
        other = console.client(url="https://fare.example.com")
        other.cookies.set("stepfare_session", client.cookies["__Host-stepfare_session"])
        assert other.get("/tonight").status_code == 401


def test_a_session_ends_by_sign_out_by_time_and_with_its_token(console: SignInConsole) -> None:
    client, csrf = console.signed_in()
    copy = console.client()
    copy.cookies.update(client.cookies)
    assert copy.get("/tonight").status_code == 404
    out = client.post("/logout", data={"csrf_token": csrf})
    assert (out.status_code, out.headers["Location"]) == (303, "/login")
    assert "Max-Age=0" in out.headers["Set-Cookie"]
    assert copy.get("/tonight").status_code == 401

    client, _ = console.signed_in()
    console.clock.move(hours=11, minutes=59)
    assert client.get("/tonight").status_code == 404
    console.clock.move(minutes=1)
    assert client.get("/tonight").status_code == 401

    secret, record = console.token()
    client = console.client()
    client.post("/login", data={"token": secret})
    assert client.get("/tonight").status_code == 404
    console.context.store.access_tokens.revoke(record.id, console.clock.now)
    console.clock.move(seconds=1)
    assert client.get("/tonight").status_code == 401


def test_a_session_is_no_longer_than_its_token(console: SignInConsole) -> None:
    client = console.client()
    signed = client.post("/login", data={"token": console.token(days=1 / 24)[0]})
    assert "Max-Age=3600" in signed.headers["Set-Cookie"]
    console.clock.move(hours=1)
    assert client.get("/tonight").status_code == 401


def test_a_session_that_was_planted_is_not_signed_in(console: SignInConsole) -> None:
    """Session fixation: signing in makes a new secret, and ends the one that was there."""
    planted, _ = console.signed_in("mallory")
    secret = planted.cookies["stepfare_session"]
    victim = console.client()
    victim.cookies.set("stepfare_session", secret, domain="127.0.0.1", path="/")
    signed = victim.post("/login", data={"token": console.token("ana")[0]})
    assert secret not in signed.headers["Set-Cookie"]
    assert planted.get("/tonight").status_code == 401


def test_a_link_begins_one_session(console: SignInConsole) -> None:
    link = make_link(console.context.store, "operator@host", console.clock.now)
    client = console.client()
    # Scanners of links ask by HEAD; that does not use it up.
    assert client.head(f"/login?link={link}").status_code == 200
    opened = client.get(f"/login?link={link}&next=/jobs")
    assert opened.status_code == 200
    assert 'content="0; url=/jobs"' in opened.text
    assert link not in opened.text
    assert client.post("/deed", headers={"X-CSRF-Token": "no"}).status_code == 403
    assert client.get("/tonight").status_code == 404
    again = console.client().get(f"/login?link={link}")
    assert again.status_code == 401
    assert "Set-Cookie" not in again.headers
    late = make_link(console.context.store, "operator@host", console.clock.now)
    console.clock.move(minutes=15)
    assert console.client().get(f"/login?link={late}").status_code == 401


def test_forms_of_a_session_carry_its_token(console: SignInConsole) -> None:
    client, csrf = console.signed_in("ana")
    _, other = console.signed_in("ben")
    assert csrf != other
    for method in ("POST", "PUT", "PATCH", "DELETE"):
        assert client.request(method, "/deed").status_code == 403
        assert client.request(method, "/deed", headers={"X-CSRF-Token": csrf}).json()["who"] == "ana"
        assert client.request(method, "/deed", headers={"X-CSRF-Token": other}).status_code == 403
    for form in (
        {},
        {"csrf_token": ""},
        {"csrf_token": other},
        {"csrf_token": csrf[:-1]},
        {"csrf_token": "ä\ud800"[:1]},
    ):
        assert client.post("/deed", data=form).status_code == 403
    sent = client.post("/deed", data={"csrf_token": csrf, "job": "x y"})
    assert sent.json() == {"who": "ana", "body": f"csrf_token={csrf}&job=x+y"}
    with_file = client.post("/deed", data={"csrf_token": csrf}, files={"file": ("a.txt", b"text")})
    assert with_file.status_code == 200
    # The token counts in a form or a header, not in JSON or a URL.
    assert client.post(f"/deed?csrf_token={csrf}", json={"csrf_token": csrf}).status_code == 403
    broken = client.post("/deed", content=b"--x", headers={"Content-Type": "multipart/form-data; boundary=\x7f"})
    assert broken.status_code == 403


def test_programs_with_a_token_need_no_csrf_token(console: SignInConsole) -> None:
    headers = bearer(console.token("ci")[0])
    assert console.client().post("/deed", headers=headers, json={"a": 1}).json() == {"who": "ci", "body": '{"a":1}'}


ORIGINS: tuple[tuple[dict[str, str], int], ...] = (
    ({"Origin": "http://127.0.0.1:8321"}, 200),
    ({"Sec-Fetch-Site": "same-origin"}, 200),
    ({"Sec-Fetch-Site": "none"}, 200),
    ({"Origin": "http://127.0.0.1:9999"}, 403),
    ({"Origin": "https://127.0.0.1:8321"}, 403),
    ({"Origin": "http://127.0.0.1:8321.evil.example"}, 403),
    ({"Origin": "null"}, 403),
    ({"Origin": "http://evil.example", "Sec-Fetch-Site": "same-origin"}, 403),
    ({"Sec-Fetch-Site": "cross-site"}, 403),
    ({"Sec-Fetch-Site": "same-site"}, 403),
)


def test_pages_of_other_sites_send_nothing(console: SignInConsole) -> None:
    client, csrf = console.signed_in()
    token = console.token()[0]
    for headers, status in ORIGINS:
        assert client.post("/deed", headers={**headers, "X-CSRF-Token": csrf}).status_code == status, headers
        # Nor do they sign somebody in as somebody else.
        signed = console.client().post("/login", data={"token": token}, headers=headers)
        assert signed.status_code == (303 if status == 200 else 403), headers


HOSTS = (
    ("127.0.0.1:8321", 401),
    ("localhost", 401),
    ("LOCALHOST.:80", 401),
    ("[::1]:8321", 401),
    ("fare.example.com", 401),
    ("Fare.Example.com:443", 401),
    ("evil.example", 421),
    ("127.0.0.1.evil.example", 421),
    ("fare.example.com.evil.example", 421),
    ("127.0.0.1:x", 400),
    ("user@127.0.0.1", 400),
    ("127.0.0.1/evil", 400),
    ("", 400),
    ("[::1", 400),
)


def test_other_names_of_this_address_are_refused(tmp_path: Path) -> None:
    with sign_in_console(tmp_path, hosts=["fare.example.com"]) as console:
        for host, status in HOSTS:
            refused = console.client().get("/tonight", headers={"Host": host})
            assert refused.status_code == status, host
            page = console.client().get("/tonight", headers={"Host": host, **PAGE})
            assert page.status_code == (303 if status == 401 else status), host
            assert refused.headers["Content-Security-Policy"] == HEADERS["Content-Security-Policy"]
        assert console.client().get("/static/pages.css", headers={"Host": "evil.example"}).status_code == 421
        # Probes of a load balancer know the address alone.
        assert console.client().get("/health", headers={"Host": "10.0.0.7"}).status_code == 200


def test_host_names_are_read_without_their_port() -> None:
    assert [host_name(text) for text in ("a.example:1", "[::1]:1", "A", ":1", "a:99999", "a b")] == [
        "a.example", "[::1]", "a", None, None, "a b",
    ]  # fmt: skip


def test_every_answer_confines_itself(console: SignInConsole) -> None:
    client = console.client(raises=False)
    secret = console.token()[0]
    answers = [
        client.get("/tonight"),
        client.get("/nowhere", headers=bearer(secret)),
        client.get("/fault", headers=bearer(secret)),
        client.get("/static/pages.css"),
        client.get("/login"),
        client.get("/health"),
        client.post("/tonight", headers=bearer(secret)),
        client.post("/deed", content=b"x" * (LARGEST_BODY + 1)),
        client.get("/tonight", headers=PAGE),
    ]
    assert [answer.status_code for answer in answers] == [401, 404, 500, 200, 200, 200, 405, 413, 303]
    for answer in answers:
        for name in set(HEADERS) - {"Cache-Control"}:
            assert answer.headers[name] == HEADERS[name], (answer.url, name)
        assert "canary" not in answer.text
    assert answers[4].headers["Cache-Control"] == "no-store"


def test_bodies_are_bounded(console: SignInConsole) -> None:
    headers = bearer(console.token()[0])
    client = console.client()
    most = client.post("/deed", headers=headers, content=b"x" * LARGEST_BODY)
    assert most.status_code == 200
    assert client.post("/deed", headers=headers, content=b"x" * (LARGEST_BODY + 1)).status_code == 413
    # Without a length it is counted as it comes.
    pieces = (b"x" * 65536 for _ in range(17))
    assert client.post("/deed", headers=headers, content=pieces).status_code == 413
    assert client.get("/tonight", headers={**headers, "Content-Length": "9" * 30}).status_code == 413
    assert client.get("/tonight", headers={**headers, "Content-Length": "x"}).status_code == 400


def test_failed_sign_ins_are_slowed_down_by_address(console: SignInConsole) -> None:
    attacker = console.client(address="192.0.2.1")
    tries = [attacker.get("/tonight", headers=bearer("stepfare_guess")) for _ in range(3)]
    tries += [attacker.post("/login", data={"token": "stepfare_guess"}) for _ in range(2)]
    assert [answer.status_code for answer in tries] == [401] * 5
    for refused in (
        attacker.get("/tonight", headers=bearer("stepfare_guess")),
        attacker.post("/login", data={"token": "stepfare_guess"}),
        attacker.get("/login?link=stepfare_guess"),
    ):
        assert (refused.status_code, refused.headers["Retry-After"]) == (429, "60")
    # Whoever shares the address and has a token gets in all the same.
    assert attacker.get("/tonight", headers=bearer(console.token()[0])).status_code == 404
    assert console.client(address="192.0.2.2").get("/tonight", headers=bearer("stepfare_guess")).status_code == 401
    console.clock.move(seconds=60)
    assert attacker.get("/tonight", headers=bearer("stepfare_guess")).status_code == 401


def test_requests_are_slowed_down_by_identity(tmp_path: Path) -> None:
    with sign_in_console(tmp_path, requests="3/minute") as console:
        ana, ben = (bearer(console.token(name)[0]) for name in ("ana", "ben"))
        client = console.client()
        assert [client.get("/tonight", headers=ana).status_code for _ in range(4)] == [404, 404, 404, 429]
        assert client.get("/tonight", headers=ben).status_code == 404
        console.clock.move(seconds=20)
        assert client.get("/tonight", headers=ana).headers["Retry-After"] == "40"
        console.clock.move(seconds=40)
        assert client.get("/tonight", headers=ana).status_code == 404


def test_head_answers_as_get_without_a_body(console: SignInConsole) -> None:
    headers = bearer(console.token()[0])
    client = console.client()
    for path in ("/static/pages.css", "/login", "/health", "/tonight", "/nowhere"):
        asked, got = client.head(path, headers=headers), client.get(path, headers=headers)
        assert (asked.status_code, asked.content) == (got.status_code, b"")
        assert asked.headers["Content-Length"] == got.headers["Content-Length"]
    assert client.head("/deed", headers=headers).status_code == 405
    assert client.head("/endless", headers=headers).headers["Content-Type"].startswith("text/event-stream")
    assert client.head("/tonight").status_code == 401


ELSEWHERE = (
        "//evil.example", "https://evil.example", "/\\evil.example", "\\\\evil.example", "/%0d%0a",
        "/a\r\nSet-Cookie: x=y", "///evil.example",
        "/a\tb", "/\x00", "javascript:alert(1)", "", "evil.example", "/é", "/" + "a" * 2000, "/logout",
        " //evil.example", "/login?next=/login",
    )  # fmt: skip


def test_signing_in_leads_nowhere_else(console: SignInConsole) -> None:
    client, token = console.client(), console.token()[0]
    for target in ELSEWHERE:
        signed = client.post("/login", data={"token": token, "next": target})
        expected = target if target == "/%0d%0a" else "/"
        assert (signed.status_code, signed.headers["Location"]) == (303, expected), target
        assert len(signed.headers.get_list("Set-Cookie")) == 1
        form = client.get("/login", params={"next": target})
        assert f'name="next" value="{expected}"' in form.text


def test_paths_of_this_server_are_kept() -> None:
    for path in ("/", "/tonight", "/plans/plan-12?day=2026-11-21&x=%20#jobs"):
        assert local_path(path) == path
