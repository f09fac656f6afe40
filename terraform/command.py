"""Argument lines of Terraform, built by python-terraform; ``terraform/process.py`` runs them.

Only ``generate_cmd_string`` of python-terraform is used: its own ways to run a command have no time limit, no streaming
and give options that Terraform dropped years ago (docs/design/provisioning.md).
"""

from __future__ import annotations

import os
from pathlib import Path

from python_terraform import IsFlagged, Terraform


def command_line(engine: Path, command: str, *arguments: str, **options: bool | str | int) -> tuple[str, ...]:
    """Return the words of ``engine command``, e.g. ``command_line(path, "apply", "p.tfplan", input=False, json=True)``.

    True is a bare flag (``-json``), False is written out (``-input=false``); ``_`` in a name becomes ``-``.
    """
    # The folder cannot exist, because the object reads the state of a folder it is given and fails on an empty one.
    # Each call makes its own object, because it is not thread-safe.
    builder = Terraform(working_dir=os.devnull, terraform_bin_path=str(engine))
    flags = {name: IsFlagged if value is True else value for name, value in options.items()}
    return tuple(str(word) for word in builder.generate_cmd_string(command, *arguments, **flags))
