"""Read the static pool's file: hosts of one's own."""

from __future__ import annotations

from pathlib import Path

from providers.static.pool import Pool
from router.config.document_file import read_single_document


def read_pool(path: Path) -> Pool:
    """Return the pool in a YAML file. InvalidInputError carries everything that is wrong, each with file and line."""
    return read_single_document(path, Pool)
