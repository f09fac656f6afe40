"""Commands ``stepfare token make``, ``list`` and ``revoke``: who may ask the console for what, and until when."""

from __future__ import annotations

import unicodedata
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from pricing.money import ZERO
from router.access.identity import Permission, Role, parse_grants
from router.cli import console
from router.cli.approvals import require_administrator
from router.cli.console import CommandError
from router.cli.options import TableOutput, option_error, parse_length_option, wall_clock
from router.cli.site_options import DEFAULT_FILES, SettingsOptions, acting_user, open_state_store
from router.jobs.fields import suggest
from router.render.record_table import RecordTable, TableColumn, attribute_columns, json_document
from router.render.tables import format_timestamp

if TYPE_CHECKING:
    from router.state.access_tokens import AccessToken

# Names of the actions in the audit log.
MAKE, REVOKE = "make token", "revoke token"
_LONGEST_NAME = 100
_LONGEST_LIFE = timedelta(days=366)


def make(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Who uses it, as the audit log will say.")],
    grant: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ROLE[:TEAM]",
            help="Role of all teams, or of one: viewer, job_owner, planner, approver, finance, admin. May be repeated.",
        ),
    ] = None,
    scope: Annotated[
        list[str] | None,
        typer.Option(metavar="SCOPE", help="Confine it to this, e.g. quotes:make. May be repeated."),
    ] = None,
    expires: Annotated[str, typer.Option(metavar="DURATION", help="How long it works, 366d at most.")] = "90d",
    note: Annotated[str, typer.Option(metavar="TEXT", help="Remark for whoever lists tokens.")] = "",
    settings_files: SettingsOptions = DEFAULT_FILES,
    output: TableOutput = "table",
) -> None:
    """Make a token and print it: the only time that it can be read. The state keeps its hash.

    \b
    stepfare token make ci --grant job_owner:speech --scope quotes:make
    stepfare token make ana --grant viewer --grant approver --expires 30d
    """
    from router.state.access_tokens import NewToken, TokenKind, draw_token

    grants, scopes = _parse_grants(grant or ()), _parse_scopes(scope or ())
    lasts = parse_length_option("--expires", expires, timedelta(minutes=1))
    if lasts > _LONGEST_LIFE:
        raise option_error("--expires", f"{expires} is longer than {_LONGEST_LIFE.days}d")
    now = wall_clock()
    new = NewToken(TokenKind.TOKEN, _check_text("NAME", name), grants, now + lasts, scopes, _check_text("--note", note))
    if not new.subject:
        raise option_error("NAME", "is empty", "write who uses the token")
    with open_state_store(settings_files) as (_, store):
        require_administrator(store, "makes tokens")
        secret, record = draw_token(new, acting_user(), now)
        shown = _token_table(now).record(record)
        # Written first, so that no token is in use that the log does not know.
        details = {key: shown[key] for key in ("id", "name", "grants", "scopes", "expires_at")}
        store.audit.add(acting_user(), MAKE, "", ZERO, now, **details)
        store.access_tokens.put(record)
    if output == "json":
        console.out(json_document({"token": {**shown, "secret": secret}}))
    else:
        console.out(secret)
        console.note(
            f"{record.id} of {record.subject}, until {format_timestamp(record.expires_at)}; it is not shown again"
        )


def list_tokens(settings_files: SettingsOptions = DEFAULT_FILES, output: TableOutput = "table") -> None:
    """List tokens, expired and revoked ones too; never the tokens themselves.

    \b
    stepfare token list
    stepfare token list -o json
    """
    now = wall_clock()
    with open_state_store(settings_files, makes=False) as (_, store):
        found = store.access_tokens.tokens()
    console.print_table(output, "tokens", _token_table(now), found, "there are no tokens")


def revoke(
    token_id: Annotated[str, typer.Argument(metavar="ID", help="As in `token list`.")],
    settings_files: SettingsOptions = DEFAULT_FILES,
    output: TableOutput = "table",
) -> None:
    """Revoke a token, and end the sessions that were signed in with it.

    \b
    stepfare token revoke token-0123456789ab
    """
    now = wall_clock()
    with open_state_store(settings_files, makes=False) as (_, store):
        found = next((record for record in store.access_tokens.tokens() if record.id == token_id), None)
        if found is None:
            raise CommandError(f"there is no token {token_id}", remedy="see `stepfare token list`")
        if found.revoked_at is None:
            found = store.access_tokens.revoke(found.id, now)
            store.audit.add(acting_user(), REVOKE, "", ZERO, now, id=found.id, name=found.subject)
    if output == "json":
        console.out(json_document({"token": _token_table(now).record(found)}))
    else:
        at = found.revoked_at or now
        console.out(f"{found.id} of {found.subject} is revoked since {format_timestamp(at)}")


def _parse_grants(texts: list[str] | tuple[str, ...]) -> tuple[str, ...]:
    if not texts:
        raise option_error("--grant", "a token without a role may do nothing", "write viewer")
    for text in texts:
        role, colon, team = text.partition(":")
        roles = [each.value for each in Role]
        if role not in roles:
            raise option_error("--grant", f"{role!r} is no role", suggest(role, roles))
        if colon:
            _check_text("--grant", team)
    try:
        return tuple(str(grant) for grant in parse_grants(texts))
    except ValueError as error:
        raise option_error("--grant", str(error), "write ROLE:TEAM") from None


def _parse_scopes(texts: list[str] | tuple[str, ...]) -> tuple[str, ...]:
    known = [each.value for each in Permission]
    for text in texts:
        if text not in known:
            raise option_error("--scope", f"{text!r} is no scope", suggest(text, known))
    return tuple(sorted(set(texts)))


def _check_text(field: str, text: str) -> str:
    """Return text without spaces around it. InvalidInputError for what a page or a table cannot show."""
    if len(text) > _LONGEST_NAME or any(unicodedata.category(each)[0] == "C" for each in text):
        raise option_error(field, f"is longer than {_LONGEST_NAME} characters, or has some that cannot be shown")
    return text.strip()


def _token_table(now: datetime) -> RecordTable[AccessToken]:
    def state(record: AccessToken) -> str:
        return "revoked" if record.revoked_at else "valid" if record.is_valid(now) else "expired"

    return RecordTable(
        (
            TableColumn("id", lambda record: record.id, "ID"),
            TableColumn("name", lambda record: record.subject, "NAME"),
            TableColumn("grants", lambda record: record.grants, "GRANTS", ", ".join),
            TableColumn("scopes", lambda record: record.scopes, "SCOPES", ", ".join),
            *attribute_columns("note", "made_by", "made_at"),
            TableColumn("expires_at", lambda record: record.expires_at, "EXPIRES", format_timestamp),
            *attribute_columns("revoked_at"),
            TableColumn("state", state, "STATE"),
            TableColumn("", lambda record: record.made_by, "MADE BY"),
            TableColumn("", lambda record: record.note, "NOTE"),
        )
    )
