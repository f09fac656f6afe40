"""The fault campaign: `python -m tests.bench.campaign [--seeds N] [--first S] [--parallel K] [--seconds S]`.

Each seed is a world of its own, in which trainings run on the sandbox under `stepfare watch` while a few faults, drawn
from the seed, come about. Afterwards nothing may be lost, double, left over or unaccounted for. A deadline that was
missed counts when the same jobs, always on demand, meet it under the same script: that is then played as well, where
notices (which only spot machines get) find nothing to strike. To meet it means a tick of the policy before its time
(ten seconds of life), since no two runs of the same script take equally long on a busy machine; for the same reason it
counts only if it is so a second time, when both are played side by side. The tables are printed; exit code 1 when
something is wrong.
"""

from __future__ import annotations

import argparse
import resource
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from router.demo.stage import TrainingResult, train_undisturbed
from tests.support.campaign import Verdict, play
from tests.support.campaign_checks import DEADLINE, INVARIANTS, PLAYED, Found
from tests.support.campaign_places import STEPS, Kind, Script, Setting, planned, script_of
from tests.support.deployed import Site, Template
from tests.support.deployed_engine import Holds
from tests.support.seen_machines import SeenMachines

SEEDS, PARALLEL = 100, 8


class Campaign:
    """Plays seeds below a folder; may be used by threads."""

    def __init__(self, folder: Path, seen_machines: SeenMachines) -> None:
        self._folder, self._seen_machines, self._lock = folder, seen_machines, threading.Lock()
        self._templates: dict[str, Template] = {}
        self._alone: TrainingResult | None = None

    def play(self, seed: int) -> Verdict:
        script = script_of(seed)
        verdict = self._played(script, script.setting, str(seed))
        if not verdict.found.late or verdict.found.wrong:
            return verdict
        if not _missed(verdict, self._played(script, script.setting.always_sure(), f"{seed}-sure")):
            return verdict
        # Beside each other, so that both find the machine as busy.
        with ThreadPoolExecutor(1) as pool:
            other = pool.submit(self._played, script, script.setting, f"{seed}-again")
            sure = self._played(script, script.setting.always_sure(), f"{seed}-sure-again")
            again = other.result()
        missed = _missed(again, sure)
        if not missed:
            return verdict
        what = f"{', '.join(missed)} was late, twice, and would not have been on demand"
        found = replace(verdict.found, wrong=((DEADLINE, what),))
        return replace(verdict, found=found, log=(*verdict.log, "always on demand:", *sure.log))

    def _played(self, script: Script, setting: Setting, name: str) -> Verdict:
        began = time.monotonic()
        try:
            template, alone = self._prepared(setting)
            return play(script, setting, template, self._folder / name, alone, self._seen_machines)
        except Exception as error:
            found = Found(wrong=((PLAYED, f"{type(error).__name__}: {error}"),))
            return Verdict(script, found, (), (), time.monotonic() - began, ())

    def _prepared(self, setting: Setting) -> tuple[Template, TrainingResult]:
        with self._lock:
            if setting.name not in self._templates:
                self._templates[setting.name] = planned(setting, self._folder / "planned")
            if self._alone is None:
                folder = self._folder / "alone"
                folder.mkdir()
                site = Site(folder, "", "", Holds(folder))
                self._alone = train_undisturbed(folder, STEPS, 0, site.environment)
            return self._templates[setting.name], self._alone


def _missed(verdict: Verdict, sure: Verdict) -> list[str]:
    """Jobs that were late, and are in time when they are always on demand."""
    return [job for job in verdict.found.late if job not in sure.found.close]


def campaign(
    seeds: Iterable[int],
    parallel: int = PARALLEL,
    told: Callable[[Verdict], None] = lambda _: None,
    seconds: float = float("inf"),
) -> list[Verdict]:
    """Plays these seeds, ``parallel`` at a time; none is begun after so many ``seconds``."""
    ends, verdicts = time.monotonic() + seconds, list[Verdict]()
    with TemporaryDirectory(prefix="stepfare-campaign-") as folder, SeenMachines(pause_s=0.15) as seen_machines:
        playing = Campaign(Path(folder), seen_machines)

        def one(seed: int) -> None:
            if time.monotonic() < ends:
                verdict = playing.play(seed)
                verdicts.append(verdict)
                told(verdict)

        with ThreadPoolExecutor(parallel) as pool:
            list(pool.map(one, seeds))
    return sorted(verdicts, key=lambda verdict: verdict.script.seed)


def line(verdict: Verdict) -> str:
    found, script = verdict.found, verdict.script
    what = ", ".join(kind.value for kind in verdict.struck) + "".join(f", ({kind.value})" for kind in verdict.missed)
    mark = "WRONG" if found.wrong else "ok" if not found.reasons else "failed"
    return (
        f"{script.seed:5} {mark:7}{verdict.seconds:5.0f} s {script.setting.name:11}{found.gangs:3} gangs "
        f"{found.repeated:4} again  {what}"
    )


def tables(verdicts: Sequence[Verdict]) -> str:
    width = max(len(name) for name in (*INVARIANTS, *Kind)) + 2
    heads = ("seeds", "struck", "missed", "finished", "failed", "again", "lost", "late", "wrong")
    lines = [f"{'fault':{width}}" + "".join(f"{head:>9}" for head in heads)]
    for kind in (None, *Kind):
        some = [v for v in verdicts if kind is None or kind in (*v.struck, *v.missed)]
        if some:
            cells = (
                len(some), sum(_count(v.struck, kind) for v in some), sum(_count(v.missed, kind) for v in some),
                sum(v.found.finished for v in some), sum(len(v.found.reasons) for v in some),
                sum(v.found.repeated for v in some), sum(v.found.lost for v in some),
                sum(len(v.found.late) for v in some), sum(bool(v.found.wrong) for v in some),
            )  # fmt: skip
            lines.append(f"{kind or 'all':{width}}" + "".join(f"{cell:9}" for cell in cells))
    lines += ["", f"{'invariant':{width}}{'holds in':>9}{'of':>9}"]
    for name in INVARIANTS:
        broken = sum(any(which == name for which, _ in v.found.wrong) for v in verdicts)
        lines.append(f"{name:{width}}{len(verdicts) - broken:9}{len(verdicts):9}")
    reasons = Counter(reason.partition(":")[0] for v in verdicts for reason in v.found.reasons)
    lines += ["", f"jobs that failed, by reason: {', '.join(f'{n} {why}' for why, n in reasons.items()) or 'none'}"]
    spoilt = sum(v.found.destroyed for v in verdicts)
    lines.append(f"steps done again because their saved file was torn afterwards: {spoilt}")
    return "\n".join(lines)


def _count(kinds: Sequence[Kind], kind: Kind | None) -> int:
    return len(kinds) if kind is None else kinds.count(kind)


def details(verdict: Verdict) -> str:
    """All about a seed, for whoever looks for the fault."""
    script = verdict.script
    lines = [f"\nseed {script.seed}, {script.setting.name}{', apply --follow' if script.follows else ''}:"]
    lines += [f"  - {which}: {what}" for which, what in verdict.found.wrong]
    lines += [f"  failed: {why}" for why in verdict.found.reasons]
    lines += [f"  script: {fault}" for fault in script.faults]
    return "\n".join([*lines, *(f"  {text}" for entry in verdict.log for text in entry.splitlines())])


def main() -> int:
    parser = argparse.ArgumentParser(description="What becomes of jobs while everything around them fails.")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the first one")
    parser.add_argument("--parallel", type=int, default=PARALLEL, help="so many at a time")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="after these no other is begun")
    parser.add_argument("--tell", action="store_true", help="what happened, of those that went well too")
    asked = parser.parse_args()
    began = time.monotonic()
    seeds = range(asked.first, asked.first + asked.seeds)

    def told(verdict: Verdict) -> None:
        more = asked.tell or verdict.found.wrong or verdict.found.reasons
        print(line(verdict), *([details(verdict)] if more else []), sep="\n", flush=True)

    verdicts = campaign(seeds, asked.parallel, told, asked.seconds)
    print(f"\n{tables(verdicts)}")
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(
        f"{len(verdicts)} of {len(seeds)} seeds in {time.monotonic() - began:.0f} s, {asked.parallel} at a time, "
        f"{used.ru_utime + used.ru_stime:.0f} s of processor time in what was waited for"
    )
    return 1 if any(verdict.found.wrong for verdict in verdicts) else 0


if __name__ == "__main__":
    sys.exit(main())
