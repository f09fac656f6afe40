"""Decide which policy runs an order or an attempt: that of the order's quote, else the deploy file's."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from router.controller.accept.guardrails import Refusal, RefusalReason
from router.controller.plans import Order
from router.deploy.deploy_settings import Deploy
from router.jobs.run_policy import RunPolicy
from router.jobs.spec import Job
from router.spot.live.selection import build_policy, default_run_policy
from router.spot.policies import Rule
from router.spot.policies.interface import Policy
from router.state.records import Attempt


@dataclass(frozen=True, slots=True)
class AssignedPolicy:
    """The policy that runs an order.

    ``quoted``: the policy that its quote was made for, None without a quote.
    """

    policy: RunPolicy
    quoted: RunPolicy | None = None

    @property
    def overridden(self) -> RunPolicy | None:
        """Return the policy of the quote, where another one runs."""
        return None if self.quoted == self.policy else self.quoted

    @property
    def recorded(self) -> tuple[str, str]:
        """Return what attempts record of it: the policy, and the quoted one where it is overridden."""
        return self.policy.text, "" if self.overridden is None else self.overridden.text


def assign_policy(order: Order, job: Job, deploy: Deploy, *, override: bool = False) -> AssignedPolicy:
    """Return the policy of the order: the quoted one, or the deploy file's with ``override`` or without a quote.

    Without a deadline the deploy file's policy is always greedy.
    """
    quoted = quoted_policy_of(order)
    file_policy = default_run_policy(deploy.policy if job.deadline is not None else Rule.GREEDY)
    if quoted is None:
        return AssignedPolicy(file_policy)
    return AssignedPolicy(file_policy if override and quoted.name != file_policy.name else quoted, quoted)


def quoted_policy_of(order: Order) -> RunPolicy | None:
    """Return the policy that the accepted quote of an order was made for; None where none was accepted."""
    return next((line.policy for line in order.lines if line.policy is not None), None)


def policy_refusals(
    orders: Iterable[Order], jobs: Mapping[str, Job], deploy: Deploy, *, override: bool = False
) -> tuple[Refusal, ...]:
    """Return refusals of orders whose quoted policy conflicts with the deploy file, or cannot be run by this version.

    A deploy file that names no policy agrees with every quote; ``override`` lets the file's policy win.
    """
    refusals: dict[str, Refusal] = {}
    for order in orders:
        quoted = quoted_policy_of(order)
        if quoted is None or order.job in refusals:
            continue
        if deploy.names_policy and quoted.name != deploy.policy and not override:
            what = f"its quote was made for {quoted.name}, and the deploy file says `policy: {deploy.policy.value}`"
            remedy = "remove `policy:` from the deploy file, or let it win with --override-policy"
            refusals[order.job] = Refusal(RefusalReason.POLICY, order.job, what, remedy)
            continue
        try:
            build_policy(assign_policy(order, jobs[order.job], deploy, override=override).policy)
        except ValueError as error:
            refusals[order.job] = Refusal(RefusalReason.POLICY, order.job, str(error), "ask for the quote again")
    return tuple(refusals.values())


def policy_name_of(attempt: Attempt, deploy: Deploy) -> str:
    """Return the name of the policy that runs an attempt.

    That is the deploy file's where none is recorded, or where the recorded one cannot be read.
    """
    recorded = RunPolicy.recorded(attempt.policy)
    return deploy.policy.value if recorded is None else recorded.name


@dataclass(slots=True)
class RecordedPolicies:
    """Returns the recorded policy that runs each attempt, built once for all that record the same.

    None where none is recorded, and where this version cannot run what is recorded; that is reported once through
    ``tell``.
    """

    make: Callable[[RunPolicy], Policy]
    tell: Callable[[str, str], None]
    _policies: dict[str, Policy | None] = field(default_factory=dict)

    def __call__(self, attempt: Attempt) -> Policy | None:
        """Return the policy of this attempt."""
        if not attempt.policy:
            return None
        if attempt.policy not in self._policies:
            self._policies[attempt.policy] = self._build(attempt)
        return self._policies[attempt.policy]

    def _build(self, attempt: Attempt) -> Policy | None:
        try:
            return self.make(RunPolicy.parse(attempt.policy))
        except ValueError as error:
            self.tell(attempt.job, f"the policy of {attempt.id} cannot be run, the deploy file's is: {error}")
            return None
