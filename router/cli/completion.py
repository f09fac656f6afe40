"""``stepfare completion``: the script that completes commands, options and live values in a shell."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from router.cli import console


class Shell(StrEnum):
    """A shell that can complete."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def completion(shell: Annotated[Shell, typer.Argument(help="Your shell.")]) -> None:
    """Print the completion script of a shell.

    \b
    stepfare completion bash > ~/.local/share/bash-completion/completions/stepfare
    stepfare completion zsh > "${fpath[1]}/_stepfare"
    stepfare completion fish > ~/.config/fish/completions/stepfare.fish
    """
    from typer._completion_shared import get_completion_script

    console.out(get_completion_script(prog_name="stepfare", complete_var="_STEPFARE_COMPLETE", shell=shell.value))
