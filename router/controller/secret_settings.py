"""Define the secrets that job files of a team may refer to, as the deploy file lists them.

They are secrets of the machine that applies.
"""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field

from router.jobs.fields import RefusedError, Spec, Text, as_many

# Every team may name these variables: whoever applies exported them for jobs.
JOB_VARIABLE_PREFIX = "STEPFARE_JOB_"


def _check_variable(value: str) -> str:
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*\*?", value):
        raise RefusedError("is no name of a variable", "write HF_TOKEN, or RESEARCH_* for all that begin so")
    return value


def _check_path(value: str) -> str:
    if not re.match(r"(?:~?/)[^\0]*[^/\0]", value):
        raise RefusedError("is no absolute path below the root", "write a file or folder: /etc/stepfare/secrets")
    return value


class SecretsEntry(Spec):
    """Secrets that job files of one team may refer to, beside variables that begin with ``STEPFARE_JOB_``."""

    env: Annotated[tuple[Annotated[Text, AfterValidator(_check_variable)], ...], BeforeValidator(as_many)] = Field(
        default=(), description="Variables; a * at the end stands for any rest.", examples=[["HF_TOKEN", "RESEARCH_*"]]
    )
    files: Annotated[tuple[Annotated[Text, AfterValidator(_check_path)], ...], BeforeValidator(as_many)] = Field(
        default=(),
        description="Files, and folders with all that is below them.",
        examples=[["/etc/stepfare/secrets/research"]],
    )

    def allows_variable(self, name: str) -> bool:
        """Return whether a job may refer to the variable."""
        if name.startswith(JOB_VARIABLE_PREFIX):
            return True
        return any(
            name.startswith(known.removesuffix("*")) if known.endswith("*") else name == known for known in self.env
        )
