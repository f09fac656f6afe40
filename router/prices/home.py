"""Where stepfare keeps what it fetched, price books and price history, the quotes that it gave, imported bills, and the
ledger's extract."""

from __future__ import annotations

import os
from pathlib import Path

import platformdirs


def home() -> Path:
    """``STEPFARE_HOME`` where it is set, else the user's data folder. It need not exist yet."""
    given = os.environ.get("STEPFARE_HOME")  # noqa: TID251  this module is the edge
    return Path(given).expanduser() if given else platformdirs.user_data_path("stepfare")


def books_folder() -> Path:
    """Fetched price books and the pointer to the latest."""
    return home() / "books"


def history_folder() -> Path:
    """Price history, a folder a month."""
    return home() / "history"


def clouds_file() -> Path:
    """The clouds file that is read when none is named: ``STEPFARE_CLOUDS``, else in the user's settings folder."""
    given = os.environ.get("STEPFARE_CLOUDS")  # noqa: TID251
    return Path(given).expanduser() if given else platformdirs.user_config_path("stepfare") / "clouds.yaml"


def quotes_folder() -> Path:
    """Quotes that were given, a file each."""
    return home() / "quotes"


def weather_fit_file() -> Path:
    """What ``stepfare quotes fit`` learned of recorded weather."""
    return home() / "weather-fit.json"


def bills_folder() -> Path:
    """Bills that were imported, and what came with which delivery."""
    return home() / "bills"


def extract_folder() -> Path:
    """The ledger as columns, a folder a state: made from the ledger, and safe to delete."""
    return home() / "extract"
