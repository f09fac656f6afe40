"""The life of one rank: fetch the code, meet the other ranks, run the training, report how it ended."""

from __future__ import annotations

import os
import queue
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from router.agent import protocol
from router.agent.calls import CoordinatorAwayError, CoordinatorClient, CoordinatorRefusalError
from router.agent.config import AgentConfig
from router.agent.control import CONTROL, AgentControlFolder, keep_stacks
from router.agent.guard import ProcessGuard
from router.agent.lease import LifetimeTimer, MachineLease
from router.agent.messenger import Messenger, OrderPoller, Outbox
from router.agent.notice_listener import NoticeListener
from router.agent.output import OutputTail, RotatingLog, SecretMask
from router.agent.preflight import (
    RESULT,
    AllReduceResult,
    PreflightCheck,
    check_machine,
    describe_problems,
    judge_all_reduce,
    with_all_reduce,
)
from router.agent.registry import VARIABLES
from router.agent.rendezvous import GangIncompleteError, RendezvousResult, RendezvousStoppedError, join_gang
from router.agent.starters import (
    JobEnvironment,
    check_fabric,
    clean_up_command,
    command_line,
    fabric_environment,
    gang_environment,
)
from router.agent.supervise import AgentEvent, ProcessExit, SupervisedProcess

TAIL = 256 * 1024
# Of a crash, the coordinator hears the last bytes of the output: enough for a traceback.
LAST_BYTES = 8 * 1024
CALL_SECONDS = 10.0
# How long a training may take to save before its machine ends for want of a coordinator, in seconds.
LAST_SAVE_SECONDS = 120.0
NO_EXIT = ProcessExit(None, None)


@dataclass(frozen=True)
class RankOutcome:
    """The end of a rank, as its last message reports it."""

    reason: str
    exit: ProcessExit = NO_EXIT
    message: str = ""

    @property
    def state(self) -> str:
        """``ended`` or ``failed``."""
        return protocol.ENDED if self.reason in (protocol.FINISHED, protocol.STOPPED) else protocol.FAILED


class RankOverError(Exception):
    """The rank ends before its training; ``outcome`` says how."""

    def __init__(self, outcome: RankOutcome) -> None:
        super().__init__(outcome.reason)
        self.outcome = outcome


class RankAgent:
    """The agent of one rank.

    ``agent`` is the path of the zipapp, for the processes that it starts from itself; ``environment`` is the machine's.
    The caller's signal handlers put their events into ``events``.
    """

    def __init__(
        self,
        config: AgentConfig,
        *,
        agent: str,
        config_file: str,
        token: str,
        given: JobEnvironment,
        environment: Mapping[str, str],
        events: queue.SimpleQueue[AgentEvent],
    ) -> None:
        self._config, self._agent, self._config_file = config, agent, config_file
        self._given, self._events = given, events
        self._environment = {**environment, **given.plain, **given.secret}
        folder = Path(config.log_folder)
        folder.mkdir(mode=0o750, parents=True, exist_ok=True)
        self._notes = RotatingLog(folder / "agent.log", min(config.log_bytes, 2**20), 2)
        self._log = RotatingLog(folder / "train.log", config.log_bytes, config.log_files)
        self._tail, self._last = OutputTail(TAIL), OutputTail(LAST_BYTES)
        self._secrets = [token, *given.secret.values()]
        self._mask = SecretMask(self._secrets)
        self._state = protocol.STARTING
        self._sequence = 0
        self._saves_last = False
        self._began = time.monotonic()
        self._identity = {"protocol": protocol.PROTOCOL, "incarnation": os.urandom(8).hex()}
        self._guard = ProcessGuard(agent)
        self._lease = MachineLease(config.lease_seconds, config.lifetime_seconds)
        self._timer = LifetimeTimer() if config.power_off else None
        self._coordinator = CoordinatorClient(
            config.coordinator,
            attempt=config.attempt,
            rank=config.rank,
            token=token,
            ca_file=config.ca_file,
            seconds=CALL_SECONDS,
            answered=self._lease.renew,
        )
        self._messenger = Messenger(
            self._coordinator,
            Outbox(Path(config.spool_folder), config.spool_bytes),
            self._tail,
            every=config.heartbeat_seconds,
            status=self._status,
            order=self._queue_order,
            note=self._note,
        )
        self._orders = OrderPoller(self._coordinator, who=self._identity, order=self._queue_order)
        # The control folder is beside the spool, which holds messages alone.
        folder = Path(config.spool_folder).resolve().with_name("control")
        self._control = AgentControlFolder(folder, signals=config.code.kind != "image")
        self._notices = NoticeListener(
            config, self._coordinator, who=self._identity, events=events, note=self._note, environment=environment
        )

    def run(self) -> int:
        """Run the rank to its end and return the agent's exit code.

        Never raises for what a job, a disk or a coordinator does.
        """
        self._messenger.start()
        self._orders.start()
        self._notices.start()
        try:
            outcome = self._run_rank()
        except (RendezvousStoppedError, GangIncompleteError, CoordinatorRefusalError) as end:
            reasons = {
                RendezvousStoppedError: protocol.STOPPED,
                GangIncompleteError: protocol.NO_GANG,
                CoordinatorRefusalError: protocol.REFUSED,
            }
            outcome = RankOutcome(reasons[type(end)], message=str(end))
        except RankOverError as end:
            outcome = end.outcome
        except OSError as error:
            outcome = RankOutcome(protocol.NOT_STARTED, message=f"{type(error).__name__}: {error.strerror or error}")
        self._lease.end_training()
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
        if outcome.reason in (protocol.CRASHED, protocol.NO_CODE, protocol.UNFIT):
            last["last_lines"] = self._last.take()[1].decode("utf-8", "replace")
        # Nobody waits for the last message of a rank that was refused, or whose coordinator is gone for good.
        is_alone = outcome.reason == protocol.REFUSED or self._saves_last
        seconds = CALL_SECONDS if is_alone else self._config.farewell_seconds
        limit = time.monotonic() + seconds
        # Notices go first: after the last message the attempt may be over, and the coordinator accepts nothing more.
        notices_sent = self._notices.finish(seconds)
        if not (self._messenger.finish(last, max(0.0, limit - time.monotonic())) and notices_sent):
            self._note("the coordinator stayed away: unsent messages are in the spool folder")
        self._outlast_training()
        return protocol.EXIT_CODES[outcome.reason]

    def _outlast_training(self) -> None:
        """Wait until the machine is released, or until no coordinator answers for so long that it ends by itself."""
        while self._lease.may_end:
            try:
                event = self._events.get(timeout=self._config.heartbeat_seconds)
            except queue.Empty:
                event = None
            if event is not None and event.kind == "signal":
                return
            if why := self._lease.why_over:
                self._note(f"the machine ends: {why}")
                if self._timer is not None:
                    self._timer.power_off()
                return
            if event is None:
                with suppress(CoordinatorAwayError, CoordinatorRefusalError):
                    self._coordinator.post("heartbeat", self._status())
                    self._rearm()

    def _rearm(self) -> None:
        if self._timer is not None and self._lease.is_held:
            self._timer.rearm()

    def _run_rank(self) -> RankOutcome:
        # Checks come first: on a disk that is full nothing else can say so.
        checks: list[PreflightCheck] = []
        if self._config.preflight != protocol.PREFLIGHT_OFF:
            checks = check_machine(self._config, self._environment, self._coordinator.ask_date)
            checks += [check_fabric(self._config)] if self._config.fabric.name else []
            problem = describe_problems(checks)
            if problem:
                self._note(f"preflight: {problem}")
            if problem and self._config.preflight == protocol.PREFLIGHT_REQUIRE:
                return RankOutcome(protocol.UNFIT, message=problem)
        Path(self._config.workdir).mkdir(parents=True, exist_ok=True)
        self._control.prepare()
        if self._config.code.kind != "none":
            fetch = [sys.executable, "-I", self._agent, "--fetch", self._config_file]
            outcome = self._run_process(fetch, self._environment, [])
            if outcome.reason == protocol.CRASHED:
                # Where the machine has no Docker, the job is not to blame.
                unfit = describe_problems([check for check in checks if check.name in ("boot", "containers")])
                return RankOutcome(protocol.UNFIT if unfit else protocol.NO_CODE, outcome.exit, unfit)
            if outcome.reason != protocol.FINISHED:
                return outcome
        self._state = protocol.WAITING
        hello = {
            **self._identity,
            "nodes": self._config.nodes,
            "host": socket.gethostname(),
            "engine": self._config.engine,
            "preflight": [asdict(check) for check in checks],
        }
        measures = self._config.preflight != protocol.PREFLIGHT_OFF and self._config.nodes > 1
        meeting = join_gang(
            self._config,
            self._coordinator,
            hello,
            self._events,
            self._note,
            self._request_checkpoint,
            self._measure_gang if measures else None,
        )
        command, environment = self._command(meeting.config, meeting.addresses)
        self._state = protocol.RUNNING
        return self._run_process(command, environment, clean_up_command(self._config))

    def _command(self, config: AgentConfig, addresses: Sequence[str]) -> tuple[list[str], dict[str, str]]:
        """Return the command line of the configuration in this gang, and its environment."""
        given = {**self._given.plain, **self._given.secret}
        variables = gang_environment(config, addresses)
        variables |= fabric_environment(config, given, self._environment)
        names = {*variables, CONTROL, *given} - VARIABLES
        variables |= self._control.environment(self._environment)
        return command_line(config, names, str(self._control.folder)), {**self._environment, **variables}

    def _measure_gang(self, meeting: RendezvousResult) -> None:
        """Take part in an all-reduce over the gang. Rank 0 reports it, and ends where the machines have to be fit."""
        config = with_all_reduce(meeting.config)
        (self._control.folder / RESULT).unlink(missing_ok=True)
        command, environment = self._command(config, meeting.addresses)
        tail, mask = OutputTail(LAST_BYTES), SecretMask(self._secrets)
        outcome = self._run_process(
            command,
            environment,
            clean_up_command(config),
            output=lambda data: tail.write(mask.feed(data)),
            seconds=protocol.MEASURE_SECONDS,
        )
        if outcome.reason == protocol.STOPPED:
            raise RankOverError(outcome)
        tail.write(mask.flush())
        lines = tail.take()[1].decode("utf-8", "replace").strip().splitlines()
        end = None if outcome.reason == protocol.UNFIT else outcome.exit
        result = judge_all_reduce(config, self._control.read(RESULT), end, lines[-1] if lines else "")
        self._note(f"preflight: {result.check.problem or result.check.what}")
        if config.rank == 0:
            self._report_gang(result)

    def _report_gang(self, result: AllReduceResult) -> None:
        check = result.check
        figures = {"gb_per_s": result.gb_per_s, "assumed_gb_per_s": self._config.assumed_gb_per_s}
        self._messenger.urgent.put(protocol.MEASURED, {**self._identity, **figures, **asdict(check)})
        if check.problem and self._config.preflight == protocol.PREFLIGHT_REQUIRE:
            raise RankOverError(RankOutcome(protocol.UNFIT, message=f"{check.name}: {check.problem}"))

    def _run_process(
        self,
        command: list[str],
        environment: Mapping[str, str],
        undo: list[str],
        *,
        output: Callable[[bytes], None] | None = None,
        seconds: float = float("inf"),
    ) -> RankOutcome:
        """Run a command to its end, until a signal or an order stops it, or for ``seconds``: then it is unfit."""
        limit = time.monotonic() + seconds
        process = SupervisedProcess(
            command,
            environment=environment,
            workdir=self._config.workdir,
            clean_up=undo,
            guard=self._guard,
            output=output or (lambda data: self._write(self._mask.feed(data))),
            events=self._events,
        )
        self._note(f"{self._state}: process {process.pid}")
        while True:
            self._control.tell_interval(self._messenger.checkpoint_seconds)
            try:
                event = self._events.get(timeout=self._control.pause)
            except queue.Empty:
                self._send_answers(self._control.look())
                self._end_without_lease()
                if time.monotonic() > limit:
                    process.terminate()
                    process.wait_gone(self._config.grace_seconds, lambda: None)
                    return RankOutcome(protocol.UNFIT, process.finish())
                continue
            if event.kind == "exit" and event.detail == process.pid:
                end = process.finish()
                self._send_answers(self._control.close() if self._state == protocol.RUNNING else [])
                return RankOutcome(protocol.FINISHED if end.fine else protocol.CRASHED, end)
            if event.kind == "checkpoint" and event.detail.get("reason") == protocol.STANDSTILL:
                self._keep_stacks(process.pid)
            if not self._request_checkpoint(event) and event.kind in ("signal", "order"):
                self._note(f"stopping: {event.kind} {event.detail}")
                if self._state == protocol.RUNNING:
                    self._control.request(os.urandom(4).hex(), protocol.STOP, self._config.grace_seconds)
                process.terminate()
                process.wait_gone(self._config.grace_seconds, lambda: self._send_answers(self._control.look()))
                end = process.finish()
                self._send_answers(self._control.close())
                return RankOutcome(protocol.STOPPED, end, f"{event.kind} {event.detail}")

    def _end_without_lease(self) -> None:
        """Let the training save and then stop, once the machine is to end for want of a coordinator."""
        why = self._lease.why_over
        if not why:
            self._saves_last = False
            self._rearm()
        elif not self._saves_last:
            self._saves_last = True
            self._note(f"the training is to save and end: {why}")
            if self._control.known():  # One that never said anything answers no request.
                self._control.request(os.urandom(4).hex(), protocol.ORDERED, LAST_SAVE_SECONDS)
        elif not self._control.is_open:
            self._events.put(AgentEvent("order", why))

    def _keep_stacks(self, group: int) -> None:
        mask = SecretMask(self._secrets)

        def write(text: bytes) -> None:
            self._write(mask.feed(text) + mask.flush())

        signals = self._config.code.kind != "image"
        arguments = (group, self._control.folder, write)
        threading.Thread(target=keep_stacks, args=arguments, kwargs={"signals": signals}, daemon=True).start()

    def _request_checkpoint(self, event: AgentEvent) -> bool:
        if event.kind == "notice":
            self._control.announced(event.detail)
        elif event.kind == "checkpoint":
            self._control.ordered(event.detail)
        return event.kind in ("notice", "checkpoint")

    def _send_answers(self, answers: list[dict[str, Any]]) -> None:
        for answer in answers:
            then = self._notices.once_saved(answer["id"])
            self._messenger.urgent.put("saved", {**self._identity, **answer}, then)

    def _status(self) -> dict[str, Any]:
        self._sequence += 1
        uptime = round(time.monotonic() - self._began, 3)
        status = {**self._identity, "state": self._state, "sequence": self._sequence, "uptime_seconds": uptime}
        return {**status, **self._control.known()}

    def _queue_order(self, order: str, answer: dict[str, Any]) -> None:
        self._events.put(
            AgentEvent("checkpoint", answer) if order == protocol.CHECKPOINT else AgentEvent("order", order)
        )

    def _write(self, data: bytes) -> None:
        self._log.write(data)
        self._tail.write(data)
        self._last.write(data)

    def _note(self, text: str) -> None:
        """Write a line for an operator to agent.log, and to the system's journal by way of stderr."""
        mask = SecretMask(self._secrets)
        line = f"{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())} rank {self._config.rank} {text}\n".encode()
        line = mask.feed(line) + mask.flush()
        self._notes.write(line)
        try:
            os.write(2, line)
        except OSError:
            return
