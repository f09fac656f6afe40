"""The agent's words: states, reasons, exit codes. They are part of the coordinator's protocol."""

from __future__ import annotations

PROTOCOL = 1

STARTING = "starting"  # the code is being fetched
WAITING = "waiting"  # for the other ranks
RUNNING = "running"  # the training process exists
ENDED = "ended"  # it finished, or stopped because it was told to
FAILED = "failed"  # anything else

# Why a rank is `ended` or `failed`.
FINISHED = "finished"  # the process ended with 0
STOPPED = "stopped"  # by a signal to the agent or an order of the coordinator
CRASHED = "crashed"  # the process ended with another code, or by a signal
NO_CODE = "no_code"  # the code could not be fetched
NO_GANG = "no_gang"  # the other ranks did not come within the time limit
REFUSED = "refused"  # the coordinator does not want this rank
NOT_STARTED = "not_started"  # the process could not be started

# The agent's own exit code by reason; a wrong configuration, which nobody can be told about, is 2.
EXIT_CODES = {
    FINISHED: 0,
    CRASHED: 1,
    NO_GANG: 3,
    NO_CODE: 4,
    REFUSED: 5,
    NOT_STARTED: 6,
    STOPPED: 143,
}
BAD_CONFIG = 2

# What the coordinator's answer may order.
CONTINUE = "continue"
STOP = "stop"
CHECKPOINT = "checkpoint"

# Kinds of notices: what a machine is told of its own end, or finds out about its health.
INTERRUPTION = "interruption"  # the cloud takes it back
REBALANCE = "rebalance"  # the cloud may do so soon
MAINTENANCE = "maintenance"  # it will be moved, paused or restarted
HEALTH = "health"  # its accelerators are not well
NOTICES = (INTERRUPTION, REBALANCE, MAINTENANCE, HEALTH)
