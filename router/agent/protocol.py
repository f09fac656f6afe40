"""The words that agent, coordinator and controller exchange: states, reasons, exit codes, orders and notices."""

from __future__ import annotations

PROTOCOL = 1

STARTING = "starting"  # The code is being fetched.
WAITING = "waiting"  # The rank waits for the other ranks.
RUNNING = "running"  # The training process exists.
ENDED = "ended"  # The process finished, or was stopped on order.
FAILED = "failed"  # The rank ended in any other way.

# The reason why a rank is `ended` or `failed`.
FINISHED = "finished"  # The process ended with 0.
STOPPED = "stopped"  # A signal to the agent or an order of the coordinator stopped it.
CRASHED = "crashed"  # The process ended with another code, or by a signal.
NO_CODE = "no_code"  # The code could not be fetched.
NO_GANG = "no_gang"  # The other ranks did not come within the time limit.
REFUSED = "refused"  # The coordinator does not want this rank.
NOT_STARTED = "not_started"  # The process could not be started.
UNFIT = "unfit"  # A check of the machine or the gang failed before the training.

# What follows from the checks of a machine before its gang meets: none are made, they are told, or they must hold.
PREFLIGHT = "preflight"
PREFLIGHT_OFF, PREFLIGHT_WARN, PREFLIGHT_REQUIRE = "off", "warn", "require"
PREFLIGHTS = (PREFLIGHT_OFF, PREFLIGHT_WARN, PREFLIGHT_REQUIRE)
# The all-reduce of a gang before it trains: the key of `hello` and its answer, the message with the result, and how
# long it may take in seconds, for an image's torch is slow to load the first time. Below this share of what the plan
# assumes, the fabric is not what was counted on: software that is missing costs nine tenths or more.
MEASURES, MEASURE, MEASURED = "measures", "measure", "measured"
MEASURE_SECONDS = 240.0
LEAST_SHARE = 0.5

# The agent's exit code by reason; for a wrong configuration, which cannot be reported to the coordinator, it is 2.
EXIT_CODES = {
    FINISHED: 0,
    CRASHED: 1,
    NO_GANG: 3,
    NO_CODE: 4,
    REFUSED: 5,
    NOT_STARTED: 6,
    UNFIT: 7,
    STOPPED: 143,
}
BAD_CONFIG = 2

# Orders in the coordinator's answer.
CONTINUE = "continue"
STOP = "stop"
CHECKPOINT = "checkpoint"

# The key in the answer to a heartbeat, beside the order, that says how often the training is to save; agents before it
# ignore it, and coordinators before it do not send it.
CHECKPOINT_SECONDS = "checkpoint_seconds"
LONGEST_CHECKPOINT_SECONDS = 1e7

# Kinds of notices: about a machine's end, or its health.
INTERRUPTION = "interruption"  # The cloud preempts the machine.
REBALANCE = "rebalance"  # The cloud may preempt it soon.
MAINTENANCE = "maintenance"  # The machine will be moved, paused or restarted.
HEALTH = "health"  # Its accelerators are not healthy.
NOTICES = (INTERRUPTION, REBALANCE, MAINTENANCE, HEALTH)

# Why a checkpoint is ordered, beside the kinds of notices; the training reads the word in its control folder.
ORDERED = "ordered"
REQUEST_REASONS = (INTERRUPTION, MAINTENANCE, REBALANCE, ORDERED, STOP)

# Why a checkpoint is ordered of a training that stands still; the training reads ORDERED, and its agent keeps stacks.
STANDSTILL = "standstill"

# The seconds to assume where a notice of an interruption gave none: the shortest that any cloud gives.
SHORTEST_SECONDS = 30.0
# Seconds of the time until a machine goes that are reserved for reporting the finished checkpoint.
REPORTING_SECONDS = 2.0
# The longest id of a notice, and of the order that it causes.
LONGEST_ID = 200
# The modules that the zipapp carries beside the agent: for training scripts, and to measure the gang before them.
HELPER = "stepfare_checkpoint.py"
HELPERS = (HELPER, "stepfare_all_reduce.py")
# The timer of systemd that ends a machine whose agent cannot.
LIFETIME_TIMER = "stepfare-lifetime.timer"
END_SERVICE = "stepfare-end.service"
# Hosts that are this machine: HTTP without TLS is allowed to them alone.
LOOPBACK = ("127.0.0.1", "::1", "localhost")
# Ports to choose one from that others will call: Linux gives those from 32768 on to outgoing connections, other systems
# those from 49152 on, and such a connection could take the port before its server listens or while it is down.
CHOSEN_PORTS = range(20_000, 32_768)
