"""URLs of the console's pages of costs. Names of teams, projects and jobs may hold any characters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import quote, unquote, urlencode

from router.showback.facts import UNALLOCATED
from router.showback.labels import label_name

KINDS = ("team", "project", "job")


def path_segment(name: str) -> str:
    """Return a name as one segment of a path.

    It is escaped twice, because servers undo one escape before they split the path: a slash in a name stays one, and
    "." and ".." are no directions.
    """
    once = name.replace(".", "%2E") if name in (".", "..") else quote(name, safe="")
    return quote(once, safe="")


def name_of_segment(segment: str) -> str:
    """Return the name of a segment whose first escape is undone: the inverse of :func:`path_segment`."""
    return unquote(segment)


@dataclass(frozen=True, slots=True)
class SpendLinks:
    """The URLs of a month's pages; ``view`` is what a reader chose that is not the default, such as the basis."""

    month: str
    view: tuple[tuple[str, str], ...] = ()

    def page(self, **changes: str) -> str:
        """Return the URL of the month's page, with other choices."""
        month = changes.pop("month", self.month)
        return f"/spend/{month}{self._query({**dict(self.view), **changes})}"

    def file(self, ending: str) -> str:
        """Return the URL of the report as a file with that ending."""
        return f"/spend/{self.month}.{ending}{self._query(dict(self.view))}"

    def level(self, **names: str | None) -> str:
        """Return the URL of the costs of a label, team, project or job; an empty name is what nobody is named for."""
        kinds = [*(kind for kind in names if label_name(kind) is not None), *(kind for kind in KINDS if kind in names)]
        path = "".join(f"/{path_segment(kind)}/{path_segment(names[kind] or UNALLOCATED)}" for kind in kinds)
        basis = {name: value for name, value in self.view if name == "basis"}
        return f"/spend/{self.month}{path}{self._query(basis)}"

    @staticmethod
    def segment(name: str) -> str:
        """Return a name as one segment of a path."""
        return path_segment(name)

    def of_row(self, row: Mapping[str, object], kind: str) -> str | None:
        """Return the URL of the label, team, project or job in a row of the report, as exact as the row says it."""
        if not isinstance(row.get(kind), str):
            return None
        if label_name(kind) is not None:
            return self.level(**{kind: str(row[kind])})
        if kind not in KINDS:
            return None
        names = {name: str(row[name]) for name in KINDS[: KINDS.index(kind) + 1] if isinstance(row.get(name), str)}
        return self.level(**names)

    @staticmethod
    def _query(values: Mapping[str, str]) -> str:
        given = {name: value for name, value in values.items() if value}
        return f"?{urlencode(given)}" if given else ""


@dataclass(frozen=True, slots=True)
class MonthChoices:
    """The choices on the page of a month: each a list of values, and the one that is shown."""

    months: tuple[str, ...]
    month: str
    by: str
    basis: str
    share_idle: str
    groups: tuple[str, ...]
    bases: tuple[str, ...]
    methods: tuple[str, ...]
