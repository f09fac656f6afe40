"""Read the showback file: whose accounts the clouds bill, and what their bills call things.

No secret belongs into it.
"""

from __future__ import annotations

from pathlib import Path

from router.config.document_file import read_single_document
from router.showback.accounts import Showback


def read_showback(path: Path) -> Showback:
    """Read the file. InvalidInputError carries everything that is wrong, each with file and line."""
    return read_single_document(path, Showback)
