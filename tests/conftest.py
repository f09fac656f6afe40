"""Settings for every test: Hypothesis is repeatable and never fails because the machine was busy; nobody's own price
books, clouds file or cloud accounts are looked at."""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import shutil
import signal
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

import tests.support.made_up_book  # noqa: F401  (before any test plans on made-up machines: these have images)
from router.cli import fix_numeric_kernels

# A shell starts `make test &` with SIGINT ignored; tests that press Ctrl-C, and what they start, need the default.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile("repeatable", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("repeatable")

# What all processes of one run share; workers inherit it from the process that starts them.
IS_WORKER = "PYTEST_XDIST_WORKER" in os.environ
if not IS_WORKER:
    os.environ["STEPFARE_TESTS_SHARED"] = tempfile.mkdtemp(prefix="stepfare-tests-shared-")

# Before numpy is imported: tests see the plans that the command line makes.
fix_numeric_kernels()

# Also for the commands that tests start: they inherit it.
os.environ["STEPFARE_HOME"] = tempfile.mkdtemp(prefix="stepfare-tests-")
os.environ["STEPFARE_CLOUDS"] = os.path.join(os.environ["STEPFARE_HOME"], "no-clouds.yaml")  # noqa: PTH118
os.environ["AWS_EC2_METADATA_DISABLED"] = "true"
for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
    os.environ.pop(name, None)


def _has_none_asked_for(path: Path, config: pytest.Config) -> bool:
    """Return whether only slow tests are asked for, and the file has none."""
    if config.option.markexpr != "slow" or not path.match("test_*.py"):
        return False
    # States are tested on PostgreSQL too, which is slow: a parameter of their fixture says so.
    return not path.match("test_state_*.py") and "mark.slow" not in path.read_text(encoding="utf-8")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out files without a test that is asked for: each worker would import all that they test."""
    return True if _has_none_asked_for(collection_path, config) else None


def _import_share(session: pytest.Session) -> None:
    """Import this worker's share of all test modules, so that no two workers rewrite the asserts of one file.

    All workers collect in one order, and would each rewrite every file while the others do.
    """
    worker, count = os.environ["PYTEST_XDIST_WORKER"], int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
    if session.config.args_source is not pytest.Config.ArgsSource.TESTPATHS:
        return
    root = session.config.rootpath
    wanted = [
        path for path in sorted((root / "tests").rglob("test_*.py")) if not _has_none_asked_for(path, session.config)
    ]
    for path in wanted[int(worker.removeprefix("gw")) :: count]:
        # What cannot be imported, or skips itself, is told when it is collected.
        with contextlib.suppress(Exception, pytest.skip.Exception):
            importlib.import_module(".".join(path.relative_to(root).with_suffix("").parts))


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Iterator[None]:
    """Collect without the garbage collector, and keep what is then loaded out of its later passes.

    Hardly anything that collecting makes is garbage, and each pass would look through all of it again.
    """
    gc.disable()
    try:
        if IS_WORKER:
            _import_share(session)
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put the tests of integration last: the longest files of the others would end alone, these mostly wait.

    With STEPFARE_LONG_SHARE (1/3: the second third) slow tests are left out as :func:`_is_of_another_share` says.
    """
    items.sort(key=lambda item: "integration" in item.path.parts)
    if share := os.environ.get("STEPFARE_LONG_SHARE"):
        number, count = map(int, share.split("/"))
        left_out = [item for item in items if _is_of_another_share(item, number, count)]
        config.hook.pytest_deselected(items=left_out)
        gone = set(left_out)
        items[:] = [item for item in items if item not in gone]


def _is_of_another_share(item: pytest.Item, number: int, count: int) -> bool:
    """Return whether this share leaves a slow test out.

    Each share takes a part: of integration by files, which share what they start, of the others by tests. Tests that
    are marked ``always`` are in each share.
    """
    if item.get_closest_marker("slow") is None or item.get_closest_marker("always") is not None:
        return False
    name = item.path.name if "integration" in item.path.parts else item.nodeid
    return zlib.crc32(name.encode()) % count != number


@pytest.fixture(autouse=True, scope="session")
def _recorded_tables() -> Iterator[None]:
    """Run the migrations of an empty state once a process; commands of their own always run them."""
    from router.state import versions
    from tests.support.recorded_tables import replay_recorded

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(versions, "_run_alembic", replay_recorded(versions._run_alembic))
        yield


def pytest_unconfigure() -> None:
    """Give everything back to the collector: libraries that count their objects at exit would report leaks."""
    gc.unfreeze()
    if not IS_WORKER:
        shutil.rmtree(os.environ["STEPFARE_TESTS_SHARED"], ignore_errors=True)
