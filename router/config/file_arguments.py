"""Find the files that the paths, folders and globs on a command line mean."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pricing.problems import InvalidInputError, Problem

# Files of these names never hold jobs, so that a folder of jobs may carry its limits.
LIMITS_NAMES = frozenset({"limits.yaml", "limits.yml"})
_SUFFIXES = frozenset({".yaml", ".yml"})


@dataclass(frozen=True, slots=True)
class FoundFiles:
    """Job files and limits files, each once, in the order of the paths and by name inside a folder."""

    jobs: tuple[Path, ...]
    limits: tuple[Path, ...]


def find_files(paths: Sequence[Path | str], *, limits_will_do: bool = False) -> FoundFiles:
    """Find files as given, folders with all below them (hidden ones left out), globs (``**`` too).

    InvalidInputError names every path that leads nowhere: no such file, a glob without match, a folder without YAML
    files; and, unless ``limits_will_do``, limits files without a job file.
    """
    by_real_path: dict[Path, Path] = {}
    problems: list[Problem] = []
    for path in paths:
        files = list(_expand(str(path)))
        if not files:
            problems.append(_missing_problem(str(path)))
        for file in files:
            by_real_path.setdefault(file.resolve(), file)
    jobs = tuple(file for file in by_real_path.values() if file.name not in LIMITS_NAMES)
    limits = tuple(file for file in by_real_path.values() if file.name in LIMITS_NAMES)
    if not problems and not jobs and not (limits and limits_will_do):
        if limits:
            remedy = "give the limits with --limits, and the job files or their folder as PATH"
            problems.append(Problem(str(limits[0]), "", "is a limits file, and there is no job file beside it", remedy))
        else:
            problems.append(Problem("", "", "no path is given", "name a job file or a folder of job files"))
    if problems:
        raise InvalidInputError(problems)
    return FoundFiles(jobs, limits)


def _expand(path: str) -> Iterator[Path]:
    if Path(path).is_dir():
        yield from _walk_folder(path)
    elif os.path.lexists(path):
        yield Path(path)
    elif glob.has_magic(path):
        for match in sorted(glob.glob(path, recursive=True)):  # noqa: PTH207  Path.glob refuses absolute patterns
            if not Path(match).is_dir():
                yield Path(match)


def _walk_folder(folder: str) -> Iterator[Path]:
    for place, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(files):
            if Path(name).suffix in _SUFFIXES and not name.startswith("."):
                yield Path(place) / name


def _missing_problem(path: str) -> Problem:
    if Path(path).is_dir():
        return Problem(path, "", "holds no .yaml or .yml file", "put job files there, or name another folder")
    if glob.has_magic(path):
        return Problem(path, "", "matches no file", "check the pattern; ** goes through folders")
    return Problem(path, "", "no such file or folder", "check the path")
