"""GPU health from nvidia-smi and the kernel's log: uncorrectable memory errors, Xid events, heat."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from router.agent.imds import MachineNotice, NoticeSourceError, NoticeWatch
from router.agent.protocol import HEALTH
from router.agent.xids import NOTED, find_events

if TYPE_CHECKING:
    from xml.etree import ElementTree

SOURCE = "gpu"
EVERY = 60.0
# nvidia-smi takes seconds with many GPUs and no persistence daemon, and hangs where a GPU hangs.
SMI_SECONDS, LOG_SECONDS = 45.0, 10.0
# Heat comes and goes, so it is reported again no sooner than this.
HEAT_AGAIN = 3600.0
_LONGEST_TEXT = 200


def watches(environment: Mapping[str, str]) -> list[NoticeWatch]:
    """Return the sources to watch; none where there is no ``nvidia-smi``."""
    tool = shutil.which("nvidia-smi", path=environment.get("PATH"))
    if tool is None:
        return []
    sources: list[NoticeWatch] = [NvidiaSmiWatch(tool)]
    log = shutil.which("dmesg", path=environment.get("PATH"))
    return [*sources, KernelLogWatch(log)] if log is not None else sources


class NvidiaSmiWatch:
    """The readings of nvidia-smi at the path ``tool``.

    A failure after it once worked is a notice too, because a lost GPU makes it fail.
    """

    name = "nvidia-smi"

    def __init__(self, tool: str, run: Callable[[list[str], float], tuple[int, str]] | None = None) -> None:
        self._tool, self._run = tool, run or run_tool
        self._was_readable = False
        self._hot_until: dict[str, float] = {}
        self._heat_counts: Counter[str] = Counter()

    def look(self, tell: Callable[[MachineNotice], None]) -> float:
        """Report the problems of all GPUs; repeated once a minute."""
        try:
            code, text = self._run([self._tool, "-q", "-x"], SMI_SECONDS)
            if code != 0:
                raise NoticeSourceError(f"nvidia-smi: exit code {code}: {text.strip()[:_LONGEST_TEXT]}")
            gpus = parse_gpus(text)
        except NoticeSourceError as trouble:
            if self._was_readable:
                tell(_notice("unreadable", str(trouble)))
            raise
        self._was_readable = True
        for gpu in gpus:
            for id_, what in gpu.problems():
                tell(_notice(id_, what))
            if gpu.hot and time.monotonic() >= self._hot_until.get(gpu.name, 0.0):
                self._hot_until[gpu.name] = time.monotonic() + HEAT_AGAIN
                self._heat_counts[gpu.name] += 1
                tell(_notice(f"heat-{gpu.name}-{self._heat_counts[gpu.name]}", f"{gpu}: {gpu.hot}"))
        return EVERY


class KernelLogWatch:
    """The Xid and SXid events in what ``dmesg`` shows; it may be readable by root alone."""

    name = "dmesg"

    def __init__(self, tool: str, run: Callable[[list[str], float], tuple[int, str]] | None = None) -> None:
        self._tool, self._run = tool, run or run_tool

    def look(self, tell: Callable[[MachineNotice], None]) -> float:
        """Report the events that mean a broken GPU or switch; repeated once a minute."""
        code, text = self._run([self._tool], LOG_SECONDS)
        if code != 0:
            raise NoticeSourceError(f"dmesg: exit code {code}: {text.strip()[:_LONGEST_TEXT]}")
        reported = set()
        for event in find_events(text):
            name = (event.kind, event.number, event.place)
            if event.severity != NOTED and name not in reported:
                reported.add(name)
                id_ = f"{event.kind.lower()}-{event.number}-{event.place}"
                what = event.text[:_LONGEST_TEXT]
                tell(_notice(id_, f"{event.kind} {event.number} on {event.place}: {what}"))
        return EVERY


class Gpu:
    """One ``gpu`` element of ``nvidia-smi -q -x``; a value that a driver does not know counts as healthy."""

    def __init__(self, element: ElementTree.Element) -> None:
        self._element = element
        self._place = element.get("id", "")
        self.name = (element.findtext("uuid") or self._place).strip()

    def __str__(self) -> str:
        return f"{(self._element.findtext('product_name') or 'GPU').strip()} {self._place}"

    @property
    def uncorrectable(self) -> int:
        """Memory errors since the driver was loaded that could not be corrected."""
        volatile = self._element.find("ecc_errors/volatile")
        if volatile is None:
            return 0
        # Up to driver 4xx there is double_bit with a total; later drivers count by kind of memory, then also by finder.
        old = volatile.find("double_bit/total")
        nodes = [old] if old is not None else [node for node in volatile if "uncorrectable" in node.tag]
        texts = [(node.text or "").strip() for node in nodes]
        return sum(int(text) for text in texts if text.isascii() and text.isdigit())

    @property
    def hot(self) -> str:
        """Why heat slows the GPU down; "" where it does not."""
        for word in ("event", "throttle"):
            for cause in ("hw_thermal_slowdown", "sw_thermal_slowdown"):
                path = f"clocks_{word}_reasons/clocks_{word}_reason_{cause}"
                if (self._element.findtext(path) or "").strip() == "Active":
                    return f"slowed down by heat ({cause})"
        return ""

    def problems(self) -> Iterable[tuple[str, str]]:
        """Yield (id, text) for each problem that does not pass by itself."""
        if self.uncorrectable:
            yield f"ecc-{self.name}-{self.uncorrectable}", f"{self}: {self.uncorrectable} uncorrectable memory errors"
        if (self._element.findtext("remapped_rows/remapped_row_failure") or "").strip() == "Yes":
            yield f"rows-{self.name}", f"{self}: a row of memory could not be replaced"
        action = (self._element.findtext("gpu_recovery_action") or "").strip()
        if action not in ("", "None", "N/A"):
            yield f"recovery-{self.name}-{action}", f"{self}: needs recovery: {action}"


def parse_gpus(text: str) -> list[Gpu]:
    """Return the GPUs in the output of ``nvidia-smi -q -x``. Raises :class:`NoticeSourceError`."""
    # The XML parser is as large as the rest of the agent, so it is loaded only where there are GPUs.
    from xml.etree import ElementTree

    try:
        root = ElementTree.fromstring(text)
    except ElementTree.ParseError:
        raise NoticeSourceError(f"nvidia-smi: not XML: {text.strip()[:_LONGEST_TEXT]}") from None
    return [Gpu(element) for element in root.iter("gpu")]


def run_tool(command: list[str], seconds: float) -> tuple[int, str]:
    """Return the exit code of a command and its output on both streams. Raises :class:`NoticeSourceError`."""
    try:
        ran = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise NoticeSourceError(f"{command[0]}: no answer within {seconds:g} s") from None
    return ran.returncode, ran.stdout.decode("utf-8", "replace")


def _notice(id_: str, what: str) -> MachineNotice:
    return MachineNotice(f"{SOURCE}-{id_}", HEALTH, SOURCE, None, what)
