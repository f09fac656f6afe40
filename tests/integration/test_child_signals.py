"""Commands begun with SIGINT ignored, as a shell begins ``command &``: what they start can still be asked to stop."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

STOPPED_CHILD = """
import os, sys, threading
from pathlib import Path
from router.cli import main as command_line
from terraform.process import StopTimeouts, run_process

try:
    sys.argv = ["stepfare", "--version"]
    command_line.main()
except SystemExit:
    pass
stop = threading.Event()
done = run_process(
    ["sh", "-c", "echo started; exec sleep 600"], folder=Path.cwd(), environment=os.environ, limit_s=300.0,
    patience=StopTimeouts(interrupt_s=120.0, terminate_s=60.0), on_line=lambda line: stop.set(), stop=stop,
)
print(done.ended, done.code, done.killed)
"""

OWN_INTERRUPT = """
import os, signal, sys
from router.cli import main as command_line

try:
    sys.argv = ["stepfare", "--version"]
    command_line.main()
except SystemExit:
    pass
os.kill(os.getpid(), signal.SIGINT)
print("still here")
"""


def _ignored(script: str, folder: Path) -> subprocess.CompletedProcess[str]:
    words = ["sh", "-c", 'trap "" INT; exec "$0" -c "$1"', sys.executable, script]
    return subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=100, check=True)


def test_a_child_of_a_command_begun_with_interrupts_ignored_stops_when_asked(tmp_path: Path) -> None:
    done = _ignored(STOPPED_CHILD, tmp_path)
    assert done.stdout.splitlines()[-1] == f"asked to stop {-signal.SIGINT} False"


def test_a_command_begun_with_interrupts_ignored_ignores_them_itself(tmp_path: Path) -> None:
    assert _ignored(OWN_INTERRUPT, tmp_path).stdout.splitlines()[-1] == "still here"


@pytest.mark.slow
def test_tests_begun_with_interrupts_ignored_can_press_ctrl_c() -> None:
    folder = Path(__file__).parents[2]
    inner = "tests/integration/test_terraform_faults.py::test_ctrl_c_stops_terraform_first"
    words = ["sh", "-c", 'trap "" INT; exec "$0" -m pytest -q -n 0 -p no:cacheprovider "$1"', sys.executable, inner]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stdout
