"""Read the deploy file: how machines are made in each cloud, where they call home, where Terraform keeps its state.

No secret belongs into it: credentials come from each cloud's own chain.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from pricing.problems import InvalidInputError
from router.config.validation import problems_of
from router.config.yamlfile import read_documents
from router.deploy.deploy_settings import Deploy
from router.jobs.fields import show_value


def deploy_path(given: Path | None, home: Path) -> tuple[Path, bool]:
    """Return the path of the deploy file, and whether somebody named it.

    The path is as given, ``STEPFARE_DEPLOY``, else in ``home``.
    """
    named = given or os.environ.get("STEPFARE_DEPLOY")  # noqa: TID251  this module is the edge
    return (Path(named).expanduser(), True) if named else (home / "deploy.yaml", False)


def load_deploy(path: Path, *, named: bool) -> Deploy:
    """Load the deploy file at ``path``; one that was not ``named`` may be missing.

    InvalidInputError for what is wrong.
    """
    if not named and not path.exists():
        return Deploy()
    documents = read_documents(path)
    if not documents:
        return Deploy()
    if len(documents) > 1:
        raise InvalidInputError.single(
            "a deploy file is one document", where=documents[1].where(), remedy="remove the line `---`"
        )
    document = documents[0]
    fields: Any = document.plain()
    if not isinstance(fields, dict):
        raise InvalidInputError.single(
            f"a deploy file is a mapping of fields, not {show_value(fields)}",
            where=document.where(),
            remedy="see `stepfare schema deploy`",
        )
    try:
        return Deploy.model_validate(fields)
    except ValidationError as error:
        raise InvalidInputError(problems_of(error, document, Deploy)) from None
