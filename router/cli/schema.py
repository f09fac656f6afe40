"""Command ``stepfare schema``: print the JSON Schema of input and output files."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from importlib import import_module
from typing import Annotated, Final

import typer

from router.cli.console import write
from router.cli.options import OutOption
from router.config.document_file import build_file_schema
from router.jobs.schema import schema_text


class SchemaKind(StrEnum):
    """Kinds of files that have a schema."""

    JOB = "job"
    LIMITS = "limits"
    CLOUDS = "clouds"
    POOL = "pool"
    SANDBOX = "sandbox"
    DEPLOY = "deploy"
    PLAN = "plan"
    QUOTE = "quote"
    ESTIMATE = "estimate"
    SHOWBACK = "showback"
    REPORT = "report"
    OPENAPI = "openapi"


#: The module and the function of each schema that is no model of a YAML file.
_TEXTS: Final[Mapping[str, tuple[str, str]]] = {
    "plan": ("router.planning.document.plan_schema", "plan_schema_text"),
    "quote": ("router.quotes.quote_json", "quote_schema_text"),
    "estimate": ("router.planning.estimate.estimate_json", "estimate_schema_text"),
    "report": ("router.showback.report.export", "report_schema_text"),
    "openapi": ("router.console.app", "openapi_text"),
}


def schema(
    kind: Annotated[
        SchemaKind,
        typer.Argument(show_choices=False, help=f"Kind of file: {', '.join(each.value for each in SchemaKind)}."),
    ],
    out: OutOption = None,
) -> None:
    """Print the JSON Schema (draft 2020-12) of an input or output file, or the OpenAPI description of `serve`.

    An editor with YAML support checks a file while you type if this is its first line (path relative to the file):

    \b
    # yaml-language-server: $schema=docs/schema/job.json

    \b
    Examples:
      stepfare schema job --out docs/schema/job.json
      stepfare schema plan
    """
    if kind in _TEXTS:
        # Imported by name: planning imports the solver.
        module, function = _TEXTS[kind]
        text: str = getattr(import_module(module), function)()
    else:
        text = schema_text(build_file_schema(kind))
    write(text, out)
