"""Tell entries of the journal, notices and states of gangs to a person. Pure functions."""

from __future__ import annotations

import re
from collections.abc import Mapping

from router.controller.report.report import GangOutlook
from router.faults.fault import FAULT_WORDS
from router.state.records import JournalEntry, NoticeRecord

# Words of the journal with what they say; details that are not named there follow as they stand.
_WORDS: Mapping[str, str] = {
    "provisioning": "Terraform begins to make the gang",
    "provisioning taken up": "another process goes on making the gang",
    "previewed": "the preview has {creates} resources to make",
    "made": "machines exist: {machines}",
    "ready": "all machines are ready for their agents",
    "hello": "the agent of rank {rank} calls from {host}",
    "preflight": "the machine of rank {rank} was checked",
    "measured": "all-reduce over the gang: {found}",
    "met": "all {ranks} ranks met; the training starts",
    "saved": "rank {rank} saved a checkpoint",
    "not_saved": "rank {rank} could not save: {failed}",
    "not_believed": "a report of rank {rank} is not believed: {why}",
    "interval": "checkpoints every {checkpoint_seconds} from now on",
    "advised": "the policy wants a checkpoint: {why}",
    "standstill": "the training {why}",
    "leaving": "the gang leaves: {why}",
    "ended": "rank {rank} ended: {reason}, exit code {exit_code}",
    "releasing": "machines are released: {reason}",
    "released": "all machines are gone: {reason}",
    "released by tag": "machines were found and released by their tag: {why}",
    "copied": "the checkpoint was copied from {from} to {to}",
    "not copied": "the checkpoint was not copied: {why}",
    "data copied": "the data were copied from {from} to {to}",
    "data not copied": "the data were not copied, and are read from {from}: {why}",
    "checkpoint not confirmed": "the checkpoint could not be confirmed: {why}",
    "checkpoint not whole": "the checkpoint of step {step} is not whole, step {instead} is",
    "given up": "the job is given up: {why}",
    "told": "people were notified: {event}",
    "refused": "rank {rank} is refused",
}
# What a word says more where its entry has the detail.
_MORE_WORDS = {"saved": " at step {saved_step}", "interval": ", before every {before_seconds}"}
_PLACE = ("cloud", "region", "zone", "instance_type", "machines")
# Details of a word that say nothing to people.
_PASSED_OVER = {
    "provisioning": ("disk_gib",),
    "preflight": ("checks",),
    # The rest is in what was found.
    "measured": ("rank", "problem", "gb_per_s", "assumed_gb_per_s", *_PLACE),
    "saved": ("id",),
    "not_saved": ("id",),
    "leaving": ("reason",),
    "ended": ("ordered", "result"),
    "copied": ("kept", "origin"),
    "data copied": ("kept", "origin"),
}
_DETAIL = re.compile(r"\{(\w+)\}")
_STEPS = frozenset({"saved_step", "step", "instead"})
_HIDDEN = frozenset({"saved_manifest", "log_bytes_lost"})
_NOTICES = {
    "interruption": "the cloud takes the machine",
    "rebalance": "the cloud may take the machine soon",
    "maintenance": "the cloud will move, pause or restart the machine",
    "health": "the machine’s accelerators are not healthy",
}
_STATES = {
    **{kind.value: words for kind, words in FAULT_WORDS.items()},
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
    "standstill": "its training stood still",
}


def describe_entry(entry: JournalEntry) -> str:
    """Return an entry of the journal as a sentence without its end; an unknown word stands as it is."""
    words = _WORDS.get(entry.what)
    if words is None:
        told, passed = entry.what, _HIDDEN
    else:
        if entry.details.get("saved_step") is not None or entry.details.get("before_seconds"):
            words += _MORE_WORDS.get(entry.what, "")
        told = _DETAIL.sub(lambda name: _detail_words(name[1], entry.details.get(name[1])), words)
        passed = _HIDDEN.union(_DETAIL.findall(words), _PASSED_OVER.get(entry.what, ()))
    rest = [
        f"{name.replace('_', ' ')} {value}"
        for name, value in entry.details.items()
        if name not in passed and value not in (None, "", False)
    ]
    return ", ".join([told, *rest])


def _detail_words(name: str, value: object) -> str:
    if name.endswith("_seconds"):
        return f"{value / 60:,.0f} min" if isinstance(value, int | float) else "an interval of its own"
    if value is None:
        return "not said"
    return f"{value:,}" if name in _STEPS and isinstance(value, int) else str(value)


def describe_notice(notice: NoticeRecord) -> str:
    """Return what a notice says and how long was left."""
    left = "time left not said" if notice.seconds is None else f"{notice.seconds:,.0f} s left"
    words = _NOTICES.get(notice.kind, notice.kind)
    return f"{words}, {left}{f': {notice.what}' if notice.what else ''}"


def describe_state(outlook: GangOutlook) -> str:
    """Return the state of a gang in words."""
    state = outlook.gang.state
    return _STATES.get(state, state.replace("_", " "))
