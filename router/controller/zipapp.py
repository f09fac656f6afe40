"""Packs the node agent: one file that any Python from 3.9 on runs."""

from __future__ import annotations

import ast
import io
import tokenize
import zipfile
from pathlib import Path

import router.agent
from router.agent.control import HELPER

SHEBANG = b"#!/usr/bin/env python3\n"
_START = "import sys\nfrom router.agent.__main__ import main\nsys.exit(main(sys.argv[1:], sys.argv[0]))\n"
_LONG_AGO = (1980, 1, 1, 0, 0, 0)


def pack() -> bytes:
    """The agent as a zipapp: the same bytes for the same sources, on any machine. Docstrings and comments are left out,
    line numbers stay; but what it brings along for jobs is whole, because their people read it. Files are stored, not
    deflated: compressed as a whole they become smaller, and deflate's output depends on the zlib at hand."""
    folder = Path(router.agent.__file__).parent
    modules = {f"router/agent/{file.name}": _bare(file.read_text(encoding="utf-8")) for file in folder.glob("*.py")}
    brought = {f"router/agent/helper/{HELPER}": (folder / "helper" / HELPER).read_text(encoding="utf-8")}
    files = {"__main__.py": _START, "router/__init__.py": "", **modules, **brought}
    packed = io.BytesIO()
    packed.write(SHEBANG)
    with zipfile.ZipFile(packed, "a", zipfile.ZIP_STORED) as archive:
        for name, text in sorted(files.items()):
            entry = zipfile.ZipInfo(name, _LONG_AGO)
            entry.create_system = 3
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, text.encode())
    return packed.getvalue()


def _bare(source: str) -> str:
    """The source without docstrings and comments, line for line: some clouds take 16 KiB for all a machine is told."""
    lines = source.splitlines()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            line, column = token.start
            lines[line - 1] = lines[line - 1][:column].rstrip()
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) or ast.get_docstring(node) is None:
            continue
        said = node.body[0]
        assert said.end_lineno is not None
        lines[said.lineno - 1 : said.end_lineno] = [
            " " * said.col_offset + '""',
            *[""] * (said.end_lineno - said.lineno),
        ]
    return "\n".join(lines) + "\n"
