"""Check the names of a job or limits file against the price book: regions, accelerators, gang sizes, machines.

A typing error here would not fail but quietly drop every offer, or limit nothing, so it is an error with its place.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pricing.book import PriceBook
from pricing.places import RegionId
from pricing.problems import InvalidInputError, Problem
from pricing.units import format_count
from router.config.job_files import LoadedJobs, LoadedLimits
from router.config.validation import dotted_path
from router.config.yamlfile import FieldPath, YamlDocument
from router.jobs.fields import RefusedError, suggest
from router.jobs.gang import GangOption, parse_accelerators
from router.jobs.limits import Limits
from router.jobs.residency import unknown_tokens
from router.jobs.spec import Job
from router.jobs.speed import arithmetic_refusal
from router.planning.find.listings import PlaceRule

BookFinding = tuple[tuple[str | int, ...], str, str]  # Path, what, remedy.


def _suggest(word: str, valid_names: Collection[str]) -> str:
    return suggest(word, valid_names, max_names=40) or "`stepfare offers` lists what there is"


@dataclass(frozen=True)
class _Names:
    book: PriceBook

    @cached_property
    def clouds(self) -> frozenset[str]:
        return frozenset(r.id.cloud for r in self.book.regions) | {m.cloud for m in self.book.machines}

    @cached_property
    def accelerators(self) -> frozenset[str]:
        return frozenset(a.name for a in self.book.accelerators) | set(self.sizes)

    @cached_property
    def sizes(self) -> dict[str, frozenset[int]]:
        """The accelerators of a machine, by accelerator."""
        sizes: dict[str, set[int]] = {}
        for machine in self.book.machines:
            sizes.setdefault(machine.accelerator, set()).add(machine.accelerator_count)
        return {name: frozenset(counts) for name, counts in sizes.items()}

    def accelerator(self, path: tuple[str | int, ...], name: str) -> Iterator[BookFinding]:
        if name not in self.accelerators:
            yield path, f"no accelerator of the price book is called {name!r}", _suggest(name, self.accelerators)

    def cloud(self, path: tuple[str | int, ...], name: str) -> Iterator[BookFinding]:
        if name not in self.clouds:
            yield path, f"no cloud of the price book is called {name!r}", _suggest(name, self.clouds)

    def region(self, path: tuple[str | int, ...], region: RegionId) -> Iterator[BookFinding]:
        if self.book.region(region) is not None:
            return
        if region.cloud not in self.clouds:
            yield from self.cloud(path, region.cloud)
            return
        known = {str(r.id) for r in self.book.regions if r.id.cloud == region.cloud}
        yield path, f"the price book knows no region {region}", _suggest(str(region), known)

    def machine(self, path: tuple[str | int, ...], cloud: str | None, name: str) -> Iterator[BookFinding]:
        known = {m.instance_type for m in self.book.machines if cloud in (None, m.cloud)}
        if name not in known:
            owner = f" of {cloud}" if cloud else ""
            yield path, f"the price book knows no machine{owner} called {name!r}", _suggest(name, known)


def check_against_book(loaded: LoadedJobs, book: PriceBook) -> None:
    """Check every name in the jobs against the book.

    InvalidInputError with every name that the book does not know, and every gang size that no machine of the book
    divides, and measured speeds that its accelerators cannot have. What is known but not on sale today is reported by
    the plan.
    """
    names = _Names(book)
    problems = [
        _problem(document, finding) for job, document in loaded for finding in _job_findings(job, document, names)
    ]
    if problems:
        raise InvalidInputError(problems)


def check_limits_against_book(loaded: LoadedLimits, book: PriceBook) -> None:
    """Check every name in the limits against the book.

    InvalidInputError with every name that the book does not know: such a limit would limit nothing.
    """
    if loaded.document is None:
        return
    problems = [_problem(loaded.document, finding) for finding in _limits_findings(loaded, _Names(book))]
    if problems:
        raise InvalidInputError(problems)


def _problem(document: YamlDocument, finding: BookFinding) -> Problem:
    path, what, remedy = finding
    return Problem(document.where(path), dotted_path(path), what, remedy)


def _job_findings(job: Job, document: YamlDocument, names: _Names) -> Iterator[BookFinding]:
    for path, option in _options_with_places(document):
        yield from names.accelerator(path, option.accelerator)
        sold = names.sizes.get(option.accelerator)
        if sold and not any(option.count % size == 0 for size in sold):
            sizes = ", ".join(map(str, sorted(sold)))
            what = f"nobody sells {option}: machines have {sizes} {option.accelerator}"
            yield path, what, f"use a multiple, e.g. {option.accelerator}:{_next_size(option.count, sold)}"
        elif sold and job.gang.machines is not None and option.count // job.gang.machines not in sold:
            sizes, machines = ", ".join(map(str, sorted(sold))), format_count(job.gang.machines, "machine")
            what = f"nobody sells {option} as {machines}: they have {sizes} {option.accelerator}"
            yield ("gang", "machines"), what, "change `machines`, or leave it out"
    for index, point in enumerate(job.workload.profile):
        path = ("workload", "profile", index, "accelerator")
        yield from names.accelerator(path, point.accelerator)
        sheet = names.book.accelerator(point.accelerator)
        wrong = None if sheet is None else arithmetic_refusal(point, job.workload, sheet)
        if wrong is not None:
            yield ("workload", "profile", index), *wrong
    if job.data is not None:
        yield from names.region(("data", "at"), job.data.at)
    if job.status is not None:
        if job.status.checkpoint_in is not None:
            yield from names.region(("status", "checkpoint_in"), job.status.checkpoint_in)
        for index, region in enumerate(job.status.data_in):
            yield from names.region(("status", "data_in", index), region)
        if (running := job.status.running) is not None:
            yield from names.region(("status", "running", "region"), running.region_id)
            yield from names.machine(("status", "running", "instance_type"), running.cloud, running.instance_type)
            if (other := running.mixed_with) is not None:
                path = ("status", "running", "mixed_with", "instance_type")
                yield from names.machine(path, running.cloud, other.instance_type)
    yield from _residency_findings(job, names)


def _residency_findings(job: Job, names: _Names) -> Iterator[BookFinding]:
    unknown = dict(unknown_tokens(job.residency, names.book.regions))
    for side, rules in (("allow", job.residency.allow), ("deny", job.residency.deny)):
        for index, rule in enumerate(rules):
            if str(rule) in unknown:
                suggested = unknown[str(rule)]
                remedy = (
                    f"did you mean {suggested}?"
                    if suggested
                    else "a cloud, cloud/region, a country such as DE, or EU, EEA, UK"
                )
                yield ("residency", side, index), f"the price book knows no place {str(rule)!r}", remedy


def _limits_findings(loaded: LoadedLimits, names: _Names) -> Iterator[BookFinding]:
    limits = loaded.limits
    for index, cloud in enumerate(limits.clouds or ()):
        yield from names.cloud(("clouds", index), cloud)
    for section in Limits.model_fields:
        entries = getattr(limits, section)
        for index, entry in enumerate(entries if isinstance(entries, tuple) else ()):
            if isinstance(entry, PlaceRule):
                yield from _place_findings((section, index), entry, names)
    for index, reservation in enumerate(limits.reservations):
        at = ("reservations", index)
        yield from names.region((*at, "region"), RegionId(reservation.cloud, reservation.region))
        yield from names.machine((*at, "instance_type"), reservation.cloud, reservation.instance_type)
    for index, discount in enumerate(limits.discounts):
        yield from names.cloud(("discounts", index, "cloud"), discount.cloud)
        if discount.family is not None:
            yield from _family_findings(("discounts", index, "family"), discount.cloud, discount.family, names)
    for section in ("egress_month_to_date_gb", "egress_caps_gb"):
        for cloud in getattr(limits, section):
            yield from names.cloud((section, cloud), cloud)


def _place_findings(at: tuple[str | int, ...], rule: PlaceRule, names: _Names) -> Iterator[BookFinding]:
    if rule.cloud is not None:
        yield from names.cloud((*at, "cloud"), rule.cloud)
    if rule.region is not None:
        yield from _region_findings((*at, "region"), rule.cloud, rule.region, names)
    if rule.instance_type is not None:
        yield from names.machine((*at, "instance_type"), rule.cloud, rule.instance_type)
    for family in rule.family:
        yield from _family_findings((*at, "family"), rule.cloud, family, names)
    accelerator: str | None = getattr(rule, "accelerator", None)
    if accelerator is not None:
        yield from names.accelerator((*at, "accelerator"), accelerator)


def _region_findings(
    path: tuple[str | int, ...], cloud: str | None, region: str, names: _Names
) -> Iterator[BookFinding]:
    known = {r.id.region for r in names.book.regions if cloud in (None, r.id.cloud)}
    if region not in known and (cloud is None or cloud in names.clouds):
        yield path, f"the price book knows no region {region!r}", _suggest(region, known)


def _family_findings(
    path: tuple[str | int, ...], cloud: str | None, family: str, names: _Names
) -> Iterator[BookFinding]:
    known = {m.family for m in names.book.machines if cloud in (None, m.cloud)}
    if family not in known and (cloud is None or cloud in names.clouds):
        yield path, f"no machine of the price book is of family {family!r}", _suggest(family, known)


def _next_size(count: int, sold: Iterable[int]) -> int:
    return min(-(-count // size) * size for size in sold)


def _options_with_places(document: YamlDocument) -> Iterator[tuple[tuple[str | int, ...], GangOption]]:
    """Yield the gang's options as written, each with its path; the model has sorted them and lost it."""
    gang = document.plain().get("gang")
    for word in ("accelerators", "any_of", "options"):
        if isinstance(gang, dict) and word in gang:
            yield from _walk_options(gang[word], ("gang", word))


def _walk_options(value: Any, path: FieldPath) -> Iterator[tuple[tuple[str | int, ...], GangOption]]:
    here = tuple(path)
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from _walk_options(item, (*here, index))
    elif isinstance(value, dict):
        for name, counts in value.items():
            if name == "accelerators":  # An entry of any_of.
                yield from _walk_options(counts, (*here, name))
            else:
                for index, count in enumerate(counts if isinstance(counts, list) else [counts]):
                    place = (*here, name, index) if isinstance(counts, list) else (*here, name)
                    yield from ((place, option) for option in _parse_options({name: count}))
    else:
        yield from ((here, option) for option in _parse_options(value))


def _parse_options(value: Any) -> list[GangOption]:
    try:
        return list(parse_accelerators(value))
    except RefusedError:  # The model has refused it already.
        return []
