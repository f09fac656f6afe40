"""Errors about provisioned machines."""

from __future__ import annotations


class NotReleasedError(Exception):
    """Some machines may still exist and cost money; the message says what was tried.

    A later call resumes the release.
    """
