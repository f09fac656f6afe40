"""Names and limits under which each small cloud is found in public catalogues (``clouds.json``)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources

from pydantic import TypeAdapter

from pricing.places import Market
from providers.neoclouds.parse.catalogue import NamingRule

GPUHUNT = "gpuhunt"
SKYPILOT = "SkyPilot"


@dataclass(frozen=True)
class CatalogueEntry:
    """One cloud in ``gpuhunt``'s catalogues.

    ``catalogue`` is its name there; ``markets`` are those that the catalogue would list if they were sold;
    ``list_all_in`` names the catalogues (:data:`GPUHUNT`, :data:`SKYPILOT`) that list each type in every region, sold
    there or not; ``live``: asked at the market itself, for hosts with ``accelerators`` (its names of those in our
    tables). ``skip`` are beginnings of machine names that stand for more than one machine (Google's n1, to which
    accelerators are attached at will).
    """

    catalogue: str
    markets: frozenset[Market]
    naming: NamingRule = field(default_factory=NamingRule)
    list_all_in: frozenset[str] = frozenset()
    live: bool = False
    accelerators: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()


@cache
def load_catalogue_entries() -> Mapping[str, CatalogueEntry]:
    """Return all of them, by the name that the registry has."""
    text = resources.files("providers.neoclouds").joinpath("clouds.json").read_text(encoding="utf-8")
    return TypeAdapter(dict[str, CatalogueEntry]).validate_json(text)


def find_cloud_name(catalogue: str) -> str:
    """Return the registry's name of the cloud that ``gpuhunt`` calls ``catalogue``; itself where there is no other."""
    return next((cloud for cloud, entry in load_catalogue_entries().items() if entry.catalogue == catalogue), catalogue)
