"""Folders of stepfare's data: price books, price history, quotas, quotes, imported bills, the ledger's extract."""

from __future__ import annotations

import os
from pathlib import Path

import platformdirs

from pricing.problems import InvalidInputError


def data_folder() -> Path:
    """Return ``STEPFARE_HOME`` where it is set, else the user's data folder. It need not exist yet.

    Raises InvalidInputError where it is something else than a folder.
    """
    given = os.environ.get("STEPFARE_HOME")  # noqa: TID251  this module alone reads these variables
    folder = Path(given).expanduser() if given else platformdirs.user_data_path("stepfare")
    if folder.exists() and not folder.is_dir():
        raise InvalidInputError.single("is no folder", where=str(folder), remedy="name a folder in STEPFARE_HOME")
    return folder


def check_home() -> None:
    """Raise InvalidInputError where ``STEPFARE_HOME`` names a folder that does not exist: it may be misspelt."""
    folder = data_folder()
    if is_home_new():
        remedy = "correct STEPFARE_HOME; commands that store, such as `stepfare plan`, make it"
        raise InvalidInputError.single("no such folder", where=str(folder), remedy=remedy)


def is_home_new() -> bool:
    """Return whether ``STEPFARE_HOME`` names a folder that does not exist."""
    return bool(os.environ.get("STEPFARE_HOME")) and not data_folder().exists()  # noqa: TID251


def books_folder(home: Path | None = None) -> Path:
    """Return the folder of fetched price books and the pointer to the latest; ``home`` None is :func:`data_folder`."""
    return (home or data_folder()) / "books"


def history_folder(home: Path | None = None) -> Path:
    """Return the folder of the price history, a folder per month; ``home`` None is :func:`data_folder`."""
    return (home or data_folder()) / "history"


def allowances_folder() -> Path:
    """Return the folder of quotas, reservations and stock as they were read from the clouds."""
    return data_folder() / "allowances"


def clouds_file() -> Path:
    """Return the clouds file that is read when none is named.

    It is ``STEPFARE_CLOUDS``, else in the user's settings folder.
    """
    given = os.environ.get("STEPFARE_CLOUDS")  # noqa: TID251
    return Path(given).expanduser() if given else platformdirs.user_config_path("stepfare") / "clouds.yaml"


def quotes_folder() -> Path:
    """Return the folder of quotes that were given, a file each."""
    return data_folder() / "quotes"


def hazard_fit_file() -> Path:
    """Return the file of the hazard model that ``stepfare quotes fit`` fitted to recorded spot availability."""
    return data_folder() / "weather-fit.json"


def bills_folder() -> Path:
    """Return the folder of imported bills and the content of each delivery."""
    return data_folder() / "bills"


def extract_folder() -> Path:
    """Return the folder of the ledger as columns, a folder per state: made from the ledger, and safe to delete."""
    return data_folder() / "extract"
