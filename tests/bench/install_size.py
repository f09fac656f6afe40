"""What an installation weighs: the files of stepfare's requirements and of theirs, by distribution.

    python -m tests.bench.install_size [--extra aws ...] [--least MIB]

Sizes are those of the files that each installed distribution lists, compiled files left out.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable
from importlib.metadata import Distribution, PackageNotFoundError, distribution

from packaging.requirements import Requirement

MIB = 2**20


def installed(name: str, extras: Iterable[str] = ()) -> dict[str, Distribution]:
    """The distribution and everything that it requires here, by normalised name."""
    found: dict[str, Distribution] = {}
    waiting = [(name, frozenset(extras))]
    seen: set[tuple[str, frozenset[str]]] = set()
    while waiting:
        wanted, with_extras = waiting.pop()
        key = re.sub(r"[-_.]+", "-", wanted).lower()
        if (key, with_extras) in seen:
            continue
        seen.add((key, with_extras))
        try:
            found[key] = distribution(wanted)
        except PackageNotFoundError:
            continue
        for text in found[key].requires or ():
            needed = Requirement(text)
            marks = [{"extra": extra} for extra in with_extras] or [{"extra": ""}]
            if needed.marker is None or any(needed.marker.evaluate(mark) for mark in marks):
                waiting.append((needed.name, frozenset(needed.extras)))
    return found


def size(one: Distribution) -> int:
    """Bytes of the files that the distribution lists and that are there."""
    paths = [one.locate_file(file) for file in one.files or () if not str(file).endswith(".pyc")]
    return sum(path.stat().st_size for path in paths if path.is_file())  # type: ignore[attr-defined]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--extra", nargs="*", default=[])
    parser.add_argument("--least", type=float, default=5.0, help="name those of at least that many MiB")
    said = parser.parse_args()
    sizes = {name: size(one) / MIB for name, one in installed("stepfare", said.extra).items()}
    large = {name: mib for name, mib in sizes.items() if mib >= said.least}
    for name, mib in sorted(large.items(), key=lambda item: -item[1]):
        print(f"{mib:7.0f} MiB  {name}")
    print(f"{sum(sizes.values()) - sum(large.values()):7.0f} MiB  {len(sizes) - len(large)} others")
    print(f"{sum(sizes.values()):7.0f} MiB  together")


if __name__ == "__main__":
    main()
