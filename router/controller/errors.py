"""What goes wrong with machines that were made."""

from __future__ import annotations


class NotReleasedError(Exception):
    """Something may still exist, and cost; the message says what was tried. Another call goes on from here."""
