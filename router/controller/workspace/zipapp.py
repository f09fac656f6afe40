"""Pack the node agent into one file that any Python from 3.9 on runs."""

from __future__ import annotations

import ast
import io
import tokenize
import zipfile
from functools import cache
from pathlib import Path

import router.agent
from router.agent.protocol import HELPERS

SHEBANG = b"#!/usr/bin/env python3\n"
_START = "import sys\nfrom router.agent.__main__ import main\nsys.exit(main(sys.argv[1:], sys.argv[0]))\n"
_FIXED_DATE = (1980, 1, 1, 0, 0, 0)


def pack_agent() -> bytes:
    """Return the agent as a zipapp; the same sources give the same bytes on any machine.

    Docstrings and comments are left out and line numbers stay; the helpers for jobs are packed unchanged, because
    people read them. Files are stored without compression: compressed as a whole they become smaller, and the output of
    deflate depends on the zlib at hand.
    """
    folder = Path(router.agent.__file__).parent
    modules = {
        f"router/agent/{file.name}": _strip_docstrings(file.read_text(encoding="utf-8")) for file in folder.glob("*.py")
    }
    helpers = {
        f"router/agent/helper/{name}": (folder / "helper" / name).read_text(encoding="utf-8") for name in HELPERS
    }
    files = {"__main__.py": _START, "router/__init__.py": "", **modules, **helpers}
    packed = io.BytesIO()
    packed.write(SHEBANG)
    with zipfile.ZipFile(packed, "a", zipfile.ZIP_STORED) as archive:
        for name, text in sorted(files.items()):
            entry = zipfile.ZipInfo(name, _FIXED_DATE)
            entry.create_system = 3
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, text.encode())
    return packed.getvalue()


@cache
def _strip_docstrings(source: str) -> str:
    """Return the source without docstrings and comments, line for line: some clouds take only 16 KiB of user data."""
    lines = source.splitlines()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            line, column = token.start
            lines[line - 1] = lines[line - 1][:column].rstrip()
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) or ast.get_docstring(node) is None:
            continue
        docstring = node.body[0]
        assert docstring.end_lineno is not None
        lines[docstring.lineno - 1 : docstring.end_lineno] = [
            " " * docstring.col_offset + '""',
            *[""] * (docstring.end_lineno - docstring.lineno),
        ]
    return "\n".join(lines) + "\n"
