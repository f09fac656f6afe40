"""Options of the commands that query clouds."""

from __future__ import annotations

from pathlib import Path

from pricing.problems import InvalidInputError
from providers.registry import CLOUDS
from router.config.settings_files import load_clouds
from router.jobs.fields import suggest
from router.prices.cloud_settings import LoadedClouds
from router.prices.data_folders import clouds_file


def select_clouds(names: list[str], file: Path | None) -> tuple[LoadedClouds, dict[str, bool]]:
    """Return the clouds file, and for each cloud to query whether it must answer.

    Raises InvalidInputError for errors in the file and for unknown cloud names.
    """
    refuse_unknown_clouds(names)
    loaded = load_clouds(file or clouds_file(), named=file is not None)
    return loaded, loaded.asked(tuple(dict.fromkeys(names)))


def refuse_unknown_clouds(names: list[str]) -> None:
    """Raise InvalidInputError for the first name that is no cloud."""
    unknown = [name for name in names if name not in CLOUDS]
    if unknown:
        raise InvalidInputError.single(
            f"{unknown[0]!r} is no cloud that this program knows",
            field="--cloud",
            remedy=suggest(unknown[0], CLOUDS),
        )
