"""Tell entries of the journal, notices and states of gangs to a person. Pure functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from router.controller.report.job_report import GangOutlook
from router.state.records import JournalEntry, NoticeRecord

# Words of the journal with what they say; the other details follow as they stand.
_WORDS: Mapping[str, tuple[Callable[[Mapping[str, object]], str], tuple[str, ...]]] = {
    "provisioning": (lambda _: "Terraform begins to make the gang", ("disk_gib",)),
    "provisioning taken up": (lambda _: "another process goes on making the gang", ()),
    "previewed": (lambda d: f"the preview has {_said(d, 'creates')} resources to make", ("creates",)),
    "made": (lambda d: f"machines exist: {_said(d, 'machines')}", ("machines",)),
    "ready": (lambda _: "all machines are ready for their agents", ()),
    "hello": (lambda d: f"the agent of rank {_said(d, 'rank')} calls from {_said(d, 'host')}", ("rank", "host")),
    "met": (lambda d: f"all {_said(d, 'ranks')} ranks met; the training starts", ("ranks",)),
    "saved": (
        lambda d: f"rank {_said(d, 'rank')} saved a checkpoint"
        + ("" if d.get("saved_step") is None else f" at step {_count(d['saved_step'])}"),
        ("rank", "saved_step", "id"),
    ),
    "not_saved": (lambda d: f"rank {_said(d, 'rank')} could not save: {_said(d, 'failed')}", ("rank", "failed", "id")),
    "not_believed": (
        lambda d: f"a report of rank {_said(d, 'rank')} is not believed: {_said(d, 'why')}",
        ("rank", "why"),
    ),
    "interval": (
        lambda d: f"checkpoints every {_minutes(d.get('checkpoint_seconds'))} from now on"
        + (f", before every {_minutes(d['before_seconds'])}" if d.get("before_seconds") else ""),
        ("checkpoint_seconds", "before_seconds"),
    ),
    "advised": (lambda d: f"the policy wants a checkpoint: {_said(d, 'why')}", ("why",)),
    "leaving": (lambda d: f"the gang leaves: {_said(d, 'why')}", ("why", "reason")),
    "ended": (
        lambda d: f"rank {_said(d, 'rank')} ended: {_said(d, 'reason')}, exit code {_said(d, 'exit_code')}",
        ("rank", "reason", "exit_code", "ordered", "result"),
    ),
    "releasing": (lambda d: f"machines are released: {_said(d, 'reason')}", ("reason",)),
    "released": (lambda d: f"all machines are gone: {_said(d, 'reason')}", ("reason",)),
    "released by tag": (lambda d: f"machines were found and released by their tag: {_said(d, 'why')}", ("why",)),
    "copied": (
        lambda d: f"the checkpoint was copied from {_said(d, 'from')} to {_said(d, 'to')}",
        ("from", "to", "kept", "origin"),
    ),
    "not copied": (lambda d: f"the checkpoint was not copied: {_said(d, 'why')}", ("why",)),
    "checkpoint not confirmed": (lambda d: f"the checkpoint could not be confirmed: {_said(d, 'why')}", ("why",)),
    "checkpoint not whole": (
        lambda d: f"the checkpoint of step {_count(d.get('step'))} is not whole, step {_count(d.get('instead'))} is",
        ("step", "instead"),
    ),
    "given up": (lambda d: f"the job is given up: {_said(d, 'why')}", ("why",)),
    "told": (lambda d: f"people were notified: {_said(d, 'event')}", ("event",)),
    "refused": (lambda d: f"rank {_said(d, 'rank')} is refused", ("rank",)),
}  # fmt: skip
_UNKNOWN = "not said"
_HIDDEN = frozenset({"saved_manifest", "log_bytes_lost"})
_NOTICES = {
    "interruption": "the cloud takes the machine",
    "rebalance": "the cloud may take the machine soon",
    "maintenance": "the cloud will move, pause or restart the machine",
    "health": "the machine’s accelerators are not healthy",
}
_STATES = {
    "planned": "planned, not begun",
    "provisioning": "machines are being made",
    "ready": "machines are ready, ranks are meeting",
    "resuming": "reads its checkpoint",
    "running": "trains",
    "noticed": "under notice",
    "checkpointing": "saves before it moves",
    "migrating": "moves elsewhere",
    "releasing": "machines are being released",
    "finished": "finished",
    "failed": "failed",
    "waits": "waits for machines",
    "interrupted": "interrupted",
    "lost": "lost its machines",
    "moved": "moved elsewhere",
    "short": "found no machines",
    "quota": "over a quota",
    "price": "dearer than its ceiling",
    "unhealthy": "machines were not healthy",
    "not_sold_here": "not sold there",
    "not_enabled_here": "not enabled there for the account",
    "refused_by_policy": "denied by a policy of the organisation",
    "setup": "wrong settings",
    "credentials": "no valid credentials, or a right is missing",
    "throttled": "too many requests",
    "transient": "a passing failure",
    "here": "a fault of the machine that runs stepfare",
}


def describe_entry(entry: JournalEntry) -> str:
    """Return an entry of the journal as a sentence without its end; an unknown word stands as it is."""
    tell, used = _WORDS.get(entry.what, (lambda _: entry.what, ()))
    rest = [
        f"{name.replace('_', ' ')} {value}"
        for name, value in entry.details.items()
        if name not in used and name not in _HIDDEN and value not in (None, "", False)
    ]
    return ", ".join([tell(entry.details), *rest])


def describe_notice(notice: NoticeRecord) -> str:
    """Return what a notice says and how long was left."""
    left = "time left not said" if notice.seconds is None else f"{notice.seconds:,.0f} s left"
    words = _NOTICES.get(notice.kind, notice.kind)
    return f"{words}, {left}{f': {notice.what}' if notice.what else ''}"


def describe_state(outlook: GangOutlook) -> str:
    """Return the state of a gang in words."""
    state = outlook.gang.state
    return _STATES.get(state, state.replace("_", " "))


def _said(details: Mapping[str, object], name: str) -> str:
    """Return a detail as it stands, or that the entry does not have it."""
    value = details.get(name)
    return _UNKNOWN if value is None else str(value)


def _count(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else _UNKNOWN if value is None else str(value)


def _minutes(value: object) -> str:
    return f"{value / 60:,.0f} min" if isinstance(value, int | float) else "an interval of its own"
