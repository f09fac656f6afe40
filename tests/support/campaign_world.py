"""One world of the fault campaign: a site with its watchers, how far its jobs are, and what is at hand to harm it."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Self

from providers.sandbox.machines import SandboxMachines
from router.controller.drills import DrillTarget, find_targets
from router.controller.history.attempt_history import resumable_histories
from router.demo.stage import read_step_count
from router.deploy.deploy_settings import Timeouts
from router.state.records import Attempt
from router.state.store import StateStore
from tests.support.campaign_places import TIMEOUTS, Setting, clock_of, cloud_time
from tests.support.deployed import Running, Site, Template

_ENDS_S, _AGAIN_S = 60.0, 2.0
_APPLIES = 4


@dataclass
class World:
    """To be used in a `with`; leaves nothing behind but files. ``wrong``: what was seen that must not be; ``said``: by
    watchers; ``first``: the command that the plan was applied with. ``destroyed``, by job: steps above this may be done
    again, since what was saved was torn."""

    site: Site
    setting: Setting
    clock: str = ""
    wrong: list[str] = field(default_factory=list)
    log: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    first: tuple[object, ...] = ()
    restart_at: float | None = None
    destroyed: dict[str, int] = field(default_factory=dict)
    _began: float = field(default_factory=time.monotonic)
    _applied: int = 1
    _watchers: list[Running] = field(default_factory=list)
    _stack: ExitStack = field(default_factory=ExitStack)

    @classmethod
    def copy_of(cls, template: Template, folder: Path, setting: Setting) -> World:
        site = template.site(folder)
        site.deploy(timeouts=TIMEOUTS)
        for job in setting.jobs:
            (folder / job).mkdir()
        return cls(site, setting)

    def __enter__(self) -> Self:
        self._stack.callback(self.site.end)
        self.store: StateStore = self._stack.enter_context(self.site.store())
        self.hand = SandboxMachines(self.site.state)
        self.first_clock = self.clock = clock_of(self.site)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    @property
    def environment(self) -> dict[str, str]:
        return {**self.site.environment, "STEPFARE_CLOCK": self.clock}

    def now(self) -> datetime:
        return cloud_time(self.clock, datetime.now(UTC).timestamp())

    def say(self, text: str) -> None:
        self.log.append(f"{time.monotonic() - self._began:6.2f} {text}")

    def finally_(self, undo: object) -> None:
        """Called at the end, the last first."""
        assert callable(undo)
        self._stack.callback(undo)

    # Watchers

    def watch(self, *words: object) -> Running:
        """Starts one: `stepfare watch`, or other ``words``."""
        running = self.site.start(*(words or ("watch",)), environment=self.environment)
        self._watchers.append(running)
        return running

    @property
    def watcher(self) -> Running | None:
        """The oldest that runs."""
        return next((one for one in self._watchers if one.process.poll() is None), None)

    def end_watcher(self, number: signal.Signals) -> None:
        """The oldest that runs gets the signal, and is waited for."""
        one = self.watcher
        if one is None:
            return
        # Nobody can be asked while he is held up.
        one.signal(signal.SIGCONT)
        one.signal(number)
        self.dismissed(one, number)

    def dismissed(self, one: Running, number: signal.Signals) -> None:
        """One that was told to end has to, in the way that it should."""
        try:
            code = one.process.wait(_ENDS_S)
        except subprocess.TimeoutExpired:
            self.wrong.append(f"a watcher runs on after {number.name}: {one.err[-1500:]}")
            one.signal(signal.SIGKILL)
            one.process.wait()
        else:
            # It may just begin, or end.
            fine = {-number} if number is signal.SIGKILL else {130, 0, 5, -number}
            # What Terraform says when it is stopped early is quoted in the middle of a line.
            if code not in fine or "\nTraceback" in f"\n{one.err}":
                self.wrong.append(f"a watcher ended with {code} after {number.name}: {one.err[-1500:]}")
        self._forget(one)

    def _forget(self, one: Running) -> None:
        self._watchers.remove(one)
        self.said.append(one.err)

    def keep_watching(self) -> None:
        """There is always one, but while it is not yet time to start the next."""
        for one in [one for one in self._watchers if one.process.poll() is not None]:
            code = one.process.returncode
            # `apply --follow` ends when all is over, and when nothing came up at all.
            if not (code in (0, 5) and self._quiet):
                self.wrong.append(f"a watcher ended by itself with {code}: {one.err[-1500:]}")
            self._forget(one)
            self.restart_at = time.monotonic() + _AGAIN_S
        if not self._watchers and (self.restart_at is None or time.monotonic() >= self.restart_at):
            self.restart_at = None
            # What never came up at all is for whoever applied the plan: who did, and was killed, does it again.
            again = bool(self.first) and not self._came_up
            self._applied += again
            self.watch(*(self.first if again else ()))

    def end_all_watchers(self) -> None:
        while self.watcher is not None:
            self.end_watcher(signal.SIGTERM)

    # Jobs

    def place(self, job: str) -> Path:
        return self.site.folder / job / "checkpoints"

    def done(self, job: str) -> int:
        """How many steps it has done, by its own account."""
        return read_step_count(self.site.folder / job)

    def attempts(self, job: str | None = None) -> Sequence[Attempt]:
        """All, or those of a job, the first one first."""
        return sorted(self.store.attempts.find(job=job), key=lambda one: (one.job, one.number))

    @property
    def over(self) -> bool:
        return self._quiet and not (self.first and not self._came_up and self._applied < _APPLIES)

    @property
    def _quiet(self) -> bool:
        """Nothing runs, and no watcher will make anything."""
        found = self.attempts()
        if {one.job for one in found} != set(self.setting.jobs) or any(not one.phase.is_over for one in found):
            return False
        if resumable_histories(self.store, found, crashes=Timeouts().max_crashes):
            return False
        # The next gang may have been begun between the two looks.
        return len(self.attempts()) == len(found)

    @property
    def _came_up(self) -> bool:
        return {one.job for one in self.store.attempts.find() if one.met_at is not None} == set(self.setting.jobs)

    def machines(self, job: str) -> tuple[DrillTarget, ...]:
        return find_targets(self.store, self.hand, self.store.attempts.find(job=job, alive=True))
