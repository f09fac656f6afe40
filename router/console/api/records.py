"""Models of answers that are projections of records: each field is the record's attribute of that name."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict

# An exact amount as text.
Amount = Annotated[str, BeforeValidator(str)]


class RecordAnswer(BaseModel):
    """An answer that :meth:`model_validate` makes of a record."""

    model_config = ConfigDict(from_attributes=True)
