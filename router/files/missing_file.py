"""Say of a file that does not exist what may have been meant."""

from __future__ import annotations

from difflib import get_close_matches
from itertools import islice
from pathlib import Path

from pricing.problems import InvalidInputError

_MOST_NAMES = 2000


def missing_file(path: Path) -> InvalidInputError:
    """Return the error of a file that does not exist, with the nearest name of its folder where one is near."""
    return InvalidInputError.single("no such file", where=str(path), remedy=_remedy(path))


def check_file(path: Path) -> None:
    """Raise the error of a file that does not exist, unless it exists."""
    if not path.exists():
        raise missing_file(path)


def _remedy(path: Path) -> str:
    folder = path.parent
    try:
        if not folder.is_dir():
            return f"there is no folder {folder}: check the path"
        stems = sorted(each.stem for each in islice(folder.iterdir(), _MOST_NAMES) if each.suffix == path.suffix)
    except OSError:
        return "check the path"
    near = get_close_matches(path.stem, stems, n=1, cutoff=0.6)
    return f"did you mean {folder / near[0]}{path.suffix}?" if near else "check the path"
