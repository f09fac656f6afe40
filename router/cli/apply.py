"""Command ``stepfare apply``: provision the machines of a plan and start its jobs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pricing.problems import InvalidInputError
from pricing.units import format_count
from router.cli import console
from router.cli.approvals import find_known_plan, load_binding_rules
from router.cli.console import CommandError, ExitCode
from router.cli.options import TableOutput, YesOption, option_error
from router.cli.plan_check import DEFAULT_GUARD, CurrentBookOption, GuardOptions, exit_code
from router.cli.site_options import (
    DEFAULT_FILES,
    SettingsOptions,
    WaitOption,
    acting_user,
    exit_on_second_interrupt,
    interrupt_on_sigterm,
    lock_provisioning,
    open_controller_session,
)
from router.ledger.entry import LedgerEntry, LedgerEntryKind
from router.ledger.month import Month
from router.planning.document.plan_terms import BOOK
from router.render.tables import format_usd

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from router.app.settings import AppSettings
    from router.controller.accept.accept import AcceptedOrders
    from router.controller.accept.approval import ApprovalRules
    from router.controller.accept.guardrails import CostLimits, CurrentPrice, Refusal
    from router.controller.context import ControllerContext
    from router.controller.plans import Order
    from router.controller.provision.provision_order import ProvisionResult
    from router.jobs.spec import Job
    from router.planning.document.plan import Plan


def apply(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A plan (JSON), as `plan --out` wrote it.")],
    yes: YesOption = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be provisioned; change nothing.")] = False,
    follow: Annotated[
        bool, typer.Option("--follow", help="Stay until every gang has ended; release each as it ends.")
    ] = False,
    book: CurrentBookOption = BOOK,
    limits: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The limits file the plan was made with: discounts, budgets.")
    ] = None,
    jobs: Annotated[
        list[str] | None, typer.Option(metavar="PATH", help="Job files, if `plan --out` was run elsewhere.")
    ] = None,
    guard_options: GuardOptions = DEFAULT_GUARD,
    override_policy: Annotated[
        bool, typer.Option("--override-policy", help="Run the deploy file's policy instead of the quoted one.")
    ] = False,
    tries: Annotated[
        int, typer.Option(min=1, max=20, help="Places to try for each gang, starting with the plan's own.")
    ] = 3,
    new_state: Annotated[
        bool, typer.Option("--new-state", help="Start a new state even if run directories of a lost one exist.")
    ] = False,
    wait: WaitOption = "5m",
    settings_files: SettingsOptions = DEFAULT_FILES,
    output: TableOutput = "table",
) -> ExitCode:
    """Provision the machines that a plan orders, whole gangs only, and start the jobs on them.

    The command checks prices, the plan's age and the money at risk, then asks for confirmation. Gangs that start later
    are provisioned by a later `apply` of the same plan, or by this one with --follow. Running it again is safe: running
    gangs are left alone, and a gang that a crash left half provisioned is completed or released. If a gang cannot be
    obtained whole, all of it is released and the plan's next place is tried.

    \b
    stepfare apply plan.json --limits limits.yaml
    stepfare apply plan.json --yes --max-cost 5000 --follow
    stepfare apply plan.json --dry-run

    With rules of approvals (`approvals set`), the state must have made the plan, and the plan needs the approvals that
    `plan approve` recorded.

    A job of an accepted quote runs under the quoted policy. If the deploy file names another policy, the job is refused
    unless --override-policy is given.

    Exit codes: 4 over budget, not approved, or a policy other than the quoted one; 5 a gang failed; 6 the plan is too
    old or a price is above its ceiling; 7 credentials.
    """
    from router.config.plan_files import read_plan
    from router.render.apply_text import outcomes_json, outcomes_table, plan_table

    plan = read_plan(file)
    guard = guard_options.read()
    session = open_controller_session(
        settings_files,
        listen=not dry_run,
        makes=not dry_run,
        new_state=new_state,
        needs_home=not dry_run,
        warns=not follow,
    )
    with session as (opened, site):
        lock = lock_provisioning(site, wait)
        work = _Work(
            site,
            opened,
            plan,
            book,
            limits,
            jobs or [],
            tries,
            override_policy=override_policy,
            rules=load_binding_rules(opened, site.store),
        )
        accepted, prices, refused = work.evaluate(guard)
        if not accepted.requests:
            console.out("the plan orders nothing")
            return ExitCode.OK
        console.note(plan_table(site, accepted, prices, refused, console.screen(sys.stderr)))
        if refused:
            return exit_code(refused)
        unreachable = work.unreachable(accepted)
        if dry_run:
            if unreachable:
                console.note(f"to apply it: {unreachable}", "warning")
            console.note("dry run: nothing was made or written")
            return ExitCode.OK
        if unreachable:
            raise unreachable
        if not work.was_confirmed(accepted) and not console.confirm(_question(accepted), yes=yes):
            console.note("not applied")
            return ExitCode.OVER_BUDGET
        outcomes = work.carry_out(accepted, guard, lock, follow=follow)
        if output == "json":
            console.out(outcomes_json(site, outcomes))
        else:
            console.out(outcomes_table(site, outcomes, console.screen()))
        if not follow and any(o.attempt is not None and not o.attempt.phase.is_over for o in outcomes):
            console.note("`stepfare watch` hears these gangs and releases those that end")
        return _exit_code(site, outcomes, followed=follow)


class _Work:
    """Run of the command: the plan with its orders, jobs, prices and limits."""

    def __init__(
        self,
        site: ControllerContext,
        opened: AppSettings,
        plan: Plan,
        book: str,
        limits: Path | None,
        jobs: Sequence[str],
        tries: int,
        *,
        override_policy: bool,
        rules: ApprovalRules | None = None,
    ) -> None:
        from router.config.job_files import read_limits
        from router.controller.plans import knows_limits, limits_json, orders_of
        from router.jobs.limits import Limits
        from router.planning.document.plan_json import plan_content
        from router.prices.books import load_book

        self._digest: str = plan_content(plan)["digest"]
        if rules is not None:
            plan = find_known_plan(site.store, self._digest)
        self._site, self._opened, self._plan, self._tries = site, opened, plan, tries
        self._override, self._rules = override_policy, rules
        self._book, self._book_name = load_book(book), book
        # The limits that the plan was made with are known if it was planned on this machine.
        stored_limits = Limits.model_validate_json(limits_json(site.store, self._digest))
        self._limits = stored_limits if limits is None else read_limits(limits)
        self._knows_limits = limits is not None or knows_limits(site.store, plan, self._digest)
        self._orders: tuple[Order, ...] = orders_of(plan)
        self._jobs = self._known_jobs(jobs)

    def evaluate(self, guard: CostLimits) -> tuple[AcceptedOrders, tuple[CurrentPrice, ...], tuple[Refusal, ...]]:
        """Return the accepted requests, their current prices, and every reason to refuse them.

        Raises InvalidInputError.
        """
        from router.controller.accept.accept import budget_refusals, requests_of
        from router.controller.accept.guardrails import current_prices, find_refusals
        from router.controller.accept.run_policies import assign_policy, policy_refusals
        from router.controller.provision.provision_order import existing_result
        from router.controller.workspace.secret_refs import resolve_environment
        from router.ledger.budget import budgets_in_force

        site, plan = self._site, self._plan
        accepted = requests_of(
            plan,
            self._digest,
            self._orders,
            self._jobs,
            self._book,
            self._tries,
            self._limits,
            lambda order, job: assign_policy(order, job, site.deploy, override=self._override),
        )
        open_orders = [
            o
            for o in self._orders
            if (s := existing_result(site, self._digest, o, plan.as_of)) is None or s.attempt is None
        ]
        for job in {e.order.job: e.job for e in accepted.requests if e.order in open_orders}.values():
            # A secret that cannot be resolved must fail before anything is provisioned.
            resolve_environment(job, site.environment, site.deploy.secrets_of(job.team))
        prices = current_prices(open_orders, self._book, self._limits)
        if not open_orders:
            return accepted, prices, ()
        accepted_before = site.store.plans.plan(self._digest) is not None
        now = site.clock()
        guard, approvals = self._with_approvals(accepted, guard, accepted_before=accepted_before)
        refused = find_refusals(
            plan, prices, guard, now, at_risk=accepted.at_risk_usd, book=self._book, knows_limits=self._knows_limits
        )
        # A plan accepted while it was fresh may be applied later; prices are checked each time.
        refused = tuple(refusal for refusal in refused if not (accepted_before and refusal.is_age))
        budgets = budget_refusals(
            open_orders,
            plan,
            self._jobs,
            self._limits,
            _this_month(site),
            site.store.attempts.find(alive=True),
            now,
            budgets_in_force(site.store.budgets.all(), Month.of(now)),
        )
        policies = policy_refusals(open_orders, self._jobs, site.deploy, override=self._override)
        return accepted, prices, (*refused, *approvals, *policies, *budgets)

    def _with_approvals(
        self, accepted: AcceptedOrders, guard: CostLimits, *, accepted_before: bool
    ) -> tuple[CostLimits, tuple[Refusal, ...]]:
        """Return the guard with the recorded approvers, and what the rules have against it.

        InvalidInputError where an approver is named beside rules: those of the rules are recorded.
        """
        from router.app.queries.approvals import maker_of
        from router.controller.accept.accept import hash_environments
        from router.controller.accept.approval import (
            PlanPeople,
            approvals_of,
            environment_refusals,
            exposure_of,
            judge_approvals,
        )

        if self._rules is None:
            return guard, ()
        if guard.approved_by:
            raise option_error(
                "--approved-by", "rules of approvals hold here, and `plan approve` records who approves", "leave it out"
            )
        store, now = self._site.store, self._site.clock()
        entries = store.audit.entries()
        jobs = (request.job for request in accepted.requests)
        environments = hash_environments(store, jobs)
        judged = judge_approvals(
            self._rules,
            exposure_of(accepted.at_risk_by_team, self._digest, entries, now),
            self._digest,
            approvals_of(entries),
            PlanPeople(
                maker_of(store, self._digest),
                acting_user(),
                store.administration.session.get("database_user", ""),
            ),
            now,
            environments=environments,
            accepted_before=accepted_before,
        )
        refused = (*judged.refusals, *environment_refusals(entries, self._digest, environments))
        return replace(guard, approved_by=", ".join(judged.approvers)), refused

    def was_confirmed(self, accepted: AcceptedOrders) -> bool:
        """Return whether this plan was confirmed before, with at least as much money as is at risk now."""
        from router.controller.accept.accept import APPLY

        key = (APPLY, self._digest)
        amounts = [entry.usd for entry in self._site.store.audit.entries() if (entry.what, entry.digest) == key]
        return bool(amounts) and accepted.at_risk_usd <= max(amounts)

    def carry_out(
        self, accepted: AcceptedOrders, guard: CostLimits, lock: AbstractContextManager[object], *, follow: bool
    ) -> tuple[ProvisionResult, ...]:
        """Provision the gangs that are due and return their results.

        Raises HeldError if another command holds the lock, and CommandError if what it did meanwhile leaves no money
        for this plan. In both cases nothing was provisioned or written.
        """
        from router.cli.watch import build_supervisor
        from router.controller.accept.accept import record_acceptance
        from router.controller.apply import PlanExecution
        from router.jobs.job_json import job_json
        from router.planning.document.plan_json import plan_to_json

        def accept() -> None:
            if refused := self.evaluate(guard)[2]:
                raise CommandError(refused[0].what, exit_code(refused), refused[0].remedy)
            accepted_before = self._site.store.plans.plan(self._digest) is not None
            approved_by = self._with_approvals(accepted, guard, accepted_before=accepted_before)[0].approved_by
            specs = {request.digest: job_json(request.job) for request in accepted.requests}
            record_acceptance(
                self._site, accepted, plan_to_json(self._plan), acting_user(), approved_by, specs, self._limits
            )

        applying = PlanExecution(self._site, accepted.requests)
        with interrupt_on_sigterm():
            outcomes = applying.now(lock, accept, _report_stopping)
            if follow:
                _note_later_gangs(outcomes)
                try:
                    outcomes = applying.stay(
                        build_supervisor(self._site, self._book_name, self._digest), _report_stopping
                    )
                except KeyboardInterrupt:
                    console.note("\nno longer followed; running gangs continue: see `stepfare status`")
                    raise
        return outcomes

    def _known_jobs(self, paths: Sequence[str]) -> dict[str, Job]:
        from router.app.plan_rerun import planned_jobs
        from router.config.job_files import load_jobs
        from router.controller.plans import as_planned

        loaded = {job.name: job for job in load_jobs(paths, self._plan.as_of).jobs} if paths else {}
        stored = planned_jobs(self._plan, self._site.store)
        return {**stored, **{name: as_planned(job, stored.get(name)) for name, job in loaded.items()}}

    def unreachable(self, accepted: AcceptedOrders) -> InvalidInputError | None:
        """Return the error to raise if remote machines could only call this machine's loopback address."""
        from terraform.module_metadata import module_facts

        if self._opened.deploy.coordinator.url is not None:
            return None
        clouds = sorted({c.cloud for e in accepted.requests for c in e.choices if not module_facts(c.cloud).local})
        if not clouds:
            return None
        return option_error(
            "coordinator.url",
            f"machines of {', '.join(clouds)} have to reach this program, and no address is known for it",
            "write `coordinator: {listen: ..., url: https://...}` into the deploy file (docs/accounts.md)",
        )


def _this_month(site: ControllerContext) -> tuple[LedgerEntry, ...]:
    first = site.clock().replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    return site.store.ledger.entries(since=first, kind=LedgerEntryKind.METERED)


def _note_later_gangs(outcomes: Sequence[ProvisionResult]) -> None:
    """Say how many gangs are to be made later, and when the next one is, because nothing is printed until then."""
    from router.controller.provision.provision_order import ProvisionStatus

    orders = [each.order for each in outcomes if each.result is ProvisionStatus.NOT_DUE]
    if orders:
        first = min(orders, key=lambda order: (order.start, order.job))
        later = format_count(len(orders), "gang")
        console.note(f"{later} to be made later: {first.job} at {first.start:%Y-%m-%d %H:%MZ} next")


def _report_stopping() -> None:
    exit_on_second_interrupt("stopping: half provisioned gangs are being released")


def _question(accepted: AcceptedOrders) -> str:
    gangs = format_count(len(accepted.requests), "gang")
    return (
        f"Make {gangs}, expected {format_usd(accepted.expected_usd)}, at risk up to {format_usd(accepted.at_risk_usd)}?"
    )


def _exit_code(site: ControllerContext, outcomes: tuple[ProvisionResult, ...], *, followed: bool) -> ExitCode:
    from router.controller.provision.provision_order import ProvisionStatus
    from router.faults.fault import FaultKind
    from router.state.records import Phase

    if any(outcome.fault is not None and outcome.fault.kind is FaultKind.CREDENTIALS for outcome in outcomes):
        return ExitCode.CREDENTIALS
    if any(outcome.result is ProvisionStatus.STOPPED for outcome in outcomes):
        return ExitCode.INTERRUPTED
    if any(outcome.result is ProvisionStatus.FAILED for outcome in outcomes):
        return ExitCode.PARTIAL
    if followed:
        final_attempts = [
            site.store.attempts.get(outcome.attempt.id) for outcome in outcomes if outcome.attempt is not None
        ]
        if any(attempt is None or attempt.phase is not Phase.FINISHED for attempt in final_attempts):
            return ExitCode.PARTIAL
    return ExitCode.OK
