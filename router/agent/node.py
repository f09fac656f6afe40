"""The life of one rank: fetch the code, meet the others, run, say how it went."""

from __future__ import annotations

import os
import queue
import socket
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from router.agent import states
from router.agent.calls import Coordinator, Refused
from router.agent.config import Config
from router.agent.control import CONTROL, STOP, Control
from router.agent.environ import Given, contract
from router.agent.guard import Guard
from router.agent.masking import Mask
from router.agent.messenger import Messenger
from router.agent.notices import Notices
from router.agent.orders import Orders
from router.agent.outbox import Outbox
from router.agent.rendezvous import NoGang, Stopped, meet
from router.agent.rotation import RotatingLog, Tail
from router.agent.starters import clean_up, command_line
from router.agent.supervise import Event, Exit, Supervised

TAIL = 256 * 1024
CALL_SECONDS = 10.0
NO_EXIT = Exit(None, None)


@dataclass(frozen=True)
class Outcome:
    """How a rank went, as its last message says it."""

    reason: str
    exit: Exit = NO_EXIT
    message: str = ""

    @property
    def state(self) -> str:
        """ended or failed."""
        return states.ENDED if self.reason in (states.FINISHED, states.STOPPED) else states.FAILED


class Node:
    """``agent`` is the path of the zipapp, for the processes that it starts from itself; ``environment`` is the
    machine's. ``events`` is where the caller's signal handlers put theirs."""

    def __init__(
        self,
        config: Config,
        *,
        agent: str,
        config_file: str,
        token: str,
        given: Given,
        environment: Mapping[str, str],
        events: queue.SimpleQueue[Event],
    ) -> None:
        self._config, self._agent, self._config_file = config, agent, config_file
        self._given, self._events = given, events
        self._environment = {**environment, **given.plain, **given.secret}
        folder = Path(config.log_folder)
        folder.mkdir(mode=0o750, parents=True, exist_ok=True)
        self._notes = RotatingLog(folder / "agent.log", min(config.log_bytes, 2**20), 2)
        self._log = RotatingLog(folder / "train.log", config.log_bytes, config.log_files)
        self._tail = Tail(TAIL)
        self._secrets = [token, *given.secret.values()]
        self._mask = Mask(self._secrets)
        self._state = states.STARTING
        self._sequence = 0
        self._began = time.monotonic()
        self._who = {"protocol": states.PROTOCOL, "incarnation": os.urandom(8).hex()}
        self._guard = Guard(agent)
        self._coordinator = Coordinator(
            config.coordinator,
            attempt=config.attempt,
            rank=config.rank,
            token=token,
            ca_file=config.ca_file,
            seconds=CALL_SECONDS,
        )
        self._messenger = Messenger(
            self._coordinator,
            Outbox(Path(config.spool_folder), config.spool_bytes),
            self._tail,
            every=config.heartbeat_seconds,
            status=self._status,
            order=self._ordered,
            note=self._note,
        )
        self._orders = Orders(self._coordinator, who=self._who, order=self._ordered)
        # Beside the spool, which holds messages alone.
        folder = Path(config.spool_folder).resolve().with_name("control")
        self._control = Control(folder, signals=config.code.kind != "image")
        self._notices = Notices(
            config, self._coordinator, who=self._who, events=events, note=self._note, environment=environment
        )

    def run(self) -> int:
        """The whole life; the exit code of the agent. Never raises for what a job, a disk or a coordinator does."""
        self._messenger.start()
        self._orders.start()
        self._notices.start()
        try:
            outcome = self._live()
        except (Stopped, NoGang, Refused) as end:
            reasons = {Stopped: states.STOPPED, NoGang: states.NO_GANG, Refused: states.REFUSED}
            outcome = Outcome(reasons[type(end)], message=str(end))
        except OSError as error:
            outcome = Outcome(states.NOT_STARTED, message=f"{type(error).__name__}: {error.strerror or error}")
        self._orders.finish()
        self._guard.close()
        self._write(self._mask.flush())
        self._state = outcome.state
        self._note(f"{outcome.state}: {outcome.reason} {outcome.message}".rstrip())
        last = {
            **self._status(),
            "reason": outcome.reason,
            "exit_code": outcome.exit.code,
            "signal": outcome.exit.signal,
        }
        last |= {"message": outcome.message, "log_bytes_lost": self._log.lost}
        # Nobody waits for the last word of a rank that was refused.
        seconds = CALL_SECONDS if outcome.reason == states.REFUSED else self._config.farewell_seconds
        limit = time.monotonic() + seconds
        # Notices first: after the last word the attempt may be over, and nothing is taken any more.
        told = self._notices.finish(seconds)
        if not (self._messenger.finish(last, max(0.0, limit - time.monotonic())) and told):
            self._note("the coordinator stayed away: what it did not hear lies in the spool folder")
        return states.EXIT_CODES[outcome.reason]

    def _live(self) -> Outcome:
        Path(self._config.workdir).mkdir(parents=True, exist_ok=True)
        self._control.prepare()
        if self._config.code.kind != "none":
            fetch = [sys.executable, "-I", self._agent, "--fetch", self._config_file]
            outcome = self._supervise(fetch, self._environment, [])
            if outcome.reason != states.FINISHED:
                return Outcome(states.NO_CODE, outcome.exit) if outcome.reason == states.CRASHED else outcome
        self._state = states.WAITING
        hello = {**self._who, "nodes": self._config.nodes, "host": socket.gethostname(), "engine": self._config.engine}
        met = meet(self._config, self._coordinator, hello, self._events, self._note, self._ask)
        config = replace(self._config, resume_step=met.resume_step, resume_manifest=met.resume_manifest)
        agreed = contract(config, met.address, met.port, met.addresses)
        names = {*agreed, CONTROL, *self._given.plain, *self._given.secret}
        agreed |= self._control.environment(self._environment)
        self._state = states.RUNNING
        command = command_line(self._config, names, str(self._control.folder))
        return self._supervise(command, {**self._environment, **agreed}, clean_up(self._config))

    def _supervise(self, command: list[str], environment: Mapping[str, str], undo: list[str]) -> Outcome:
        """Runs it to its end, or until a signal or an order stops it."""
        process = Supervised(
            command,
            environment=environment,
            workdir=self._config.workdir,
            clean_up=undo,
            guard=self._guard,
            output=self._output,
            events=self._events,
        )
        self._note(f"{self._state}: process {process.pid}")
        while True:
            try:
                event = self._events.get(timeout=self._control.pause)
            except queue.Empty:
                self._tell(self._control.look())
                continue
            if event.kind == "exit" and event.detail == process.pid:
                end = process.finish()
                self._tell(self._control.close() if self._state == states.RUNNING else [])
                return Outcome(states.FINISHED if end.fine else states.CRASHED, end)
            if not self._ask(event) and event.kind in ("signal", "order"):
                self._note(f"stopping: {event.kind} {event.detail}")
                if self._state == states.RUNNING:
                    self._control.request(os.urandom(4).hex(), STOP, self._config.grace_seconds)
                process.terminate()
                process.wait_gone(self._config.grace_seconds, lambda: self._tell(self._control.look()))
                end = process.finish()
                self._tell(self._control.close())
                return Outcome(states.STOPPED, end, f"{event.kind} {event.detail}")

    def _ask(self, event: Event) -> bool:
        """Whether the event asks the training for a checkpoint; then it is asked."""
        if event.kind == "notice":
            self._control.announced(event.detail)
        elif event.kind == "checkpoint":
            self._control.ordered(event.detail)
        return event.kind in ("notice", "checkpoint")

    def _tell(self, answers: list[dict[str, Any]]) -> None:
        """What the training said of its checkpoints, to the coordinator, at once."""
        for answer in answers:
            then = self._notices.once_saved(answer["id"])
            self._messenger.urgent.put("saved", {**self._who, **answer}, then)

    def _status(self) -> dict[str, Any]:
        self._sequence += 1
        uptime = round(time.monotonic() - self._began, 3)
        said = {**self._who, "state": self._state, "sequence": self._sequence, "uptime_seconds": uptime}
        return {**said, **self._control.known()}

    def _ordered(self, order: str, answer: dict[str, Any]) -> None:
        self._events.put(Event("checkpoint", answer) if order == states.CHECKPOINT else Event("order", order))

    def _output(self, data: bytes) -> None:
        self._write(self._mask.feed(data))

    def _write(self, data: bytes) -> None:
        self._log.write(data)
        self._tail.write(data)

    def _note(self, text: str) -> None:
        """A line for whoever logs in: into agent.log, and to the journal by way of stderr."""
        mask = Mask(self._secrets)
        line = f"{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())} rank {self._config.rank} {text}\n".encode()
        line = mask.feed(line) + mask.flush()
        self._notes.write(line)
        try:
            os.write(2, line)
        except OSError:
            return
