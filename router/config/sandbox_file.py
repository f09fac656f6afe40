"""Read the sandbox's script: stock, prices and notices over time."""

from __future__ import annotations

from pathlib import Path

from providers.sandbox.script import Script
from router.config.document_file import read_single_document


def read_sandbox(path: Path) -> Script:
    """Return the script in a YAML file. InvalidInputError carries everything that is wrong, each with file and line."""
    return read_single_document(path, Script)
