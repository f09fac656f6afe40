"""A walk takes its steps some at a time, each in a folder of its own, and collects what was wrong after each."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from tests.support.faults import NotHereError, StageMissedError

Step = TypeVar("Step")
# Steps mostly wait.
AT_ONCE = 4
_TRIES = 3


@dataclass(frozen=True)
class Verdict(Generic[Step]):
    """``wrong`` is empty when all is well; ``skipped``: why the step could not be walked on this machine."""

    step: Step
    wrong: tuple[str, ...]
    seconds: float
    skipped: str = ""

    @property
    def mark(self) -> str:
        return "-" if self.skipped else "WRONG" if self.wrong else "ok"


def take(step: Step, walked: Callable[[Step, Path], Iterable[str]], folder: Path) -> Verdict[Step]:
    """Walk one step, again where its stage went by unseen. Raises nothing."""
    begun = time.monotonic()
    wrong: tuple[str, ...] = ()
    skipped = ""
    for number in range(_TRIES):
        try:
            wrong = tuple(walked(step, folder / str(number)))
        except StageMissedError as error:
            wrong = (f"StageMissedError: {error}",)
            continue
        except NotHereError as error:
            skipped = str(error)
        except Exception as error:
            wrong = (f"{type(error).__name__}: {error}",)
        break
    return Verdict(step, wrong, time.monotonic() - begun, skipped)


def walk(steps: Sequence[Step], walked: Callable[[Step, Path], Iterable[str]], folder: Path) -> list[Verdict[Step]]:
    """Walk all steps, some at a time, each in a folder of its own below ``folder``."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        verdicts = [pool.submit(take, step, walked, folder / str(number)) for number, step in enumerate(steps)]
        return [verdict.result() for verdict in verdicts]


def sum_up(verdicts: Sequence[Verdict[Step]]) -> str:
    """Return how many of the steps that could be walked were right."""
    walked = [verdict for verdict in verdicts if not verdict.skipped]
    good = sum(not verdict.wrong for verdict in walked)
    return f"{good} of {len(walked)} ok, {100 * good / len(walked):.0f} %"
