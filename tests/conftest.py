"""Settings for every test: Hypothesis is repeatable and never fails because the machine was busy; nobody's own price
books, clouds file or cloud accounts are looked at."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

# A shell starts `make test &` with SIGINT ignored; tests that press Ctrl-C, and what they start, need the default.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile("repeatable", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("repeatable")

# What all processes of one run share; workers inherit it from the process that starts them.
IS_WORKER = "PYTEST_XDIST_WORKER" in os.environ
if not IS_WORKER:
    os.environ["STEPFARE_TESTS_SHARED"] = tempfile.mkdtemp(prefix="stepfare-tests-shared-")

# Also for the commands that tests start: they inherit it.
os.environ["STEPFARE_HOME"] = tempfile.mkdtemp(prefix="stepfare-tests-")
os.environ["STEPFARE_CLOUDS"] = os.path.join(os.environ["STEPFARE_HOME"], "no-clouds.yaml")  # noqa: PTH118
os.environ["AWS_EC2_METADATA_DISABLED"] = "true"
for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
    os.environ.pop(name, None)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collect without the garbage collector, and keep what is then loaded out of its later passes.

    Hardly anything that collecting makes is garbage, and each pass would look through all of it again.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_unconfigure() -> None:
    """Give everything back to the collector: libraries that count their objects at exit would report leaks."""
    gc.unfreeze()
    if not IS_WORKER:
        shutil.rmtree(os.environ["STEPFARE_TESTS_SHARED"], ignore_errors=True)
