"""HTML pages without external scripts, links or fonts, and atomic writing of pages and images."""

from __future__ import annotations

import html
import os
from pathlib import Path

from router.cli import console

# Style that all pages share; each page adds its own.
_STYLE = """
body { font: 15px/1.4 sans-serif; margin: 2em auto; padding: 0 1em; color: #222; background: #fff }
svg { max-width: 100%; height: auto }
table { border-collapse: collapse }
"""


def html_document(title: str, style: str, body: str) -> str:
    """Return an HTML document; ``body`` is HTML, ``title`` is text."""
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>{html.escape(title)}</title>
<style>{_STYLE}{style.lstrip()}</style>
</head>
<body>
{body}
</body>
</html>
"""


def check_output_folders(*files: Path | None) -> None:
    """Raise CommandError if the folder of a file does not exist, so that a long command fails at its start."""
    for file in files:
        if file is not None and not file.parent.is_dir():
            raise console.CommandError(f"{file}: cannot be written: there is no folder {file.parent}")


def write_page_file(file: Path, content: bytes) -> None:
    """Write content to a file atomically. Raises CommandError if it cannot be written."""
    part = file.with_name(f".{file.name}.{os.getpid()}.part")
    try:
        with part.open("wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        part.replace(file)
    except OSError as error:
        raise console.CommandError(f"{file}: cannot be written: {error.strerror or error}") from None
