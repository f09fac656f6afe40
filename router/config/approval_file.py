"""Read the rules of approvals, and check that whoever applies a plan cannot change them."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pricing.problems import InvalidInputError
from router.config.validation import validate_single
from router.config.yamlfile import read_documents
from router.controller.accept.approval import ApprovalRules


def load_approval_rules(path: Path) -> ApprovalRules:
    """Return the rules in a file. InvalidInputError for what is wrong, a missing or empty file included."""
    remedy = "write at least `approvers: [{name: ...}]`"
    rules = validate_single(
        read_documents(path), ApprovalRules, "rules", second=("", remedy), shape=(", not VALUE", "")
    )
    if rules is None:
        raise InvalidInputError.single("is empty: nobody could approve anything", where=str(path), remedy=remedy)
    return rules


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """The user and groups of a process."""

    uid: int
    groups: frozenset[int]

    @classmethod
    def of_process(cls) -> ProcessIdentity | None:
        """Return those of this process; None where the system has no such thing."""
        if not hasattr(os, "geteuid"):
            return None
        return cls(os.geteuid(), frozenset({os.getegid(), *os.getgroups()}))


def change_problem(path: Path, identity: ProcessIdentity) -> str:
    """Return how this user could change the file or put another one in its place; "" where they cannot.

    Its owner can, and whoever may write to it, or to a folder above it. Root can always: that is no problem of the
    file, and the answer is "".
    """
    if identity.uid == 0:
        return ""
    named, real = path.absolute(), path.resolve()
    try:
        if problem := _access_problem(real, identity, "the file"):
            return problem
        for folder in dict.fromkeys([*named.parents, *real.parents]):
            if problem := _access_problem(folder, identity, f"the folder {folder}"):
                return problem
    except OSError as error:
        return f"its permissions cannot be read: {error.strerror}"
    return ""


def _access_problem(path: Path, identity: ProcessIdentity, what: str) -> str:
    found = path.stat()
    if found.st_uid == identity.uid:
        return f"{what} belongs to the user that applies"
    # In a sticky folder only its owner renames what belongs to others.
    sticky = stat.S_ISDIR(found.st_mode) and bool(found.st_mode & stat.S_ISVTX)
    if not sticky and any(_ways_to_write(path, found, identity)):
        return f"the user that applies may write to {what} (mode {stat.S_IMODE(found.st_mode):04o})"
    return ""


def _ways_to_write(path: Path, status: os.stat_result, identity: ProcessIdentity) -> Iterator[bool]:
    yield bool(status.st_mode & stat.S_IWOTH)
    yield bool(status.st_mode & stat.S_IWGRP) and status.st_gid in identity.groups
    # The system knows access control lists too, but only for this process.
    yield identity == ProcessIdentity.of_process() and os.access(path, os.W_OK)
