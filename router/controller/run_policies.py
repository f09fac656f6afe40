"""Which policy runs an order: the one that its quote was made for, else the deploy file's; and which one runs an
attempt that is there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from router.config.deploy_file import Deploy
from router.controller.guardrails import Cause, Refusal
from router.controller.orders import Order
from router.jobs.run_policy import RunPolicy
from router.jobs.spec import Job
from router.spot.live.selection import policy_of, run_policy
from router.spot.policies.interface import Policy, Rule
from router.state.records import Attempt


@dataclass(frozen=True, slots=True)
class Assigned:
    """``policy`` runs the order. ``quoted``: the one that its quote was made for, None without a quote."""

    policy: RunPolicy
    quoted: RunPolicy | None = None

    @property
    def overridden(self) -> RunPolicy | None:
        """The policy of the quote, where another one runs."""
        return None if self.quoted == self.policy else self.quoted


def assigned(order: Order, job: Job, deploy: Deploy, *, override: bool = False) -> Assigned:
    """What was quoted runs; with ``override``, the deploy file's policy. Without a deadline that is always greedy."""
    quoted = quoted_for(order)
    own = run_policy(deploy.policy if job.deadline is not None else Rule.GREEDY)
    if quoted is None:
        return Assigned(own)
    return Assigned(own if override and quoted.name != own.name else quoted, quoted)


def quoted_for(order: Order) -> RunPolicy | None:
    """The policy that the accepted quote of an order was made for; None where none was accepted."""
    return next((line.policy for line in order.lines if line.policy is not None), None)


def policy_refusals(
    orders: Iterable[Order], jobs: Mapping[str, Job], deploy: Deploy, *, override: bool = False
) -> tuple[Refusal, ...]:
    """Orders whose quote was made for another policy than the deploy file names, and those whose policy this version
    cannot run. A deploy file that names none agrees with every quote; ``override`` lets the file's policy win."""
    refused: dict[str, Refusal] = {}
    for order in orders:
        quoted = quoted_for(order)
        if quoted is None or order.job in refused:
            continue
        if deploy.names_policy and quoted.name != deploy.policy and not override:
            what = f"its quote was made for {quoted.name}, and the deploy file says `policy: {deploy.policy.value}`"
            remedy = "remove `policy:` from the deploy file, or let it win with --override-policy"
            refused[order.job] = Refusal(Cause.POLICY, order.job, what, remedy)
            continue
        try:
            policy_of(assigned(order, jobs[order.job], deploy, override=override).policy)
        except ValueError as error:
            refused[order.job] = Refusal(Cause.POLICY, order.job, str(error), "ask for the quote again")
    return tuple(refused.values())


def name_of(attempt: Attempt, deploy: Deploy) -> str:
    """The name of the policy that runs an attempt; the deploy file's where none is recorded, or none can be read."""
    found = RunPolicy.recorded(attempt.policy)
    return deploy.policy.value if found is None else found.name


@dataclass(slots=True)
class RecordedPolicies:
    """The policy that runs each attempt, made once for all that record the same. None where an attempt of an earlier
    version records none, and where this version cannot run what is recorded: that is said once through ``tell``."""

    make: Callable[[RunPolicy], Policy]
    tell: Callable[[str, str], None]
    _known: dict[str, Policy | None] = field(default_factory=dict)

    def __call__(self, attempt: Attempt) -> Policy | None:
        """Of this attempt."""
        if not attempt.policy:
            return None
        if attempt.policy not in self._known:
            self._known[attempt.policy] = self._made(attempt)
        return self._known[attempt.policy]

    def _made(self, attempt: Attempt) -> Policy | None:
        try:
            return self.make(RunPolicy.parse(attempt.policy))
        except ValueError as error:
            self.tell(attempt.job, f"the policy of {attempt.id} cannot be run, the deploy file's is: {error}")
            return None
