"""`stepfare` as another user of this machine, whose number is the first argument. Only root can become one, on Linux.

The interpreter may lie where root alone reads, so the process and its children may read everything
(CAP_DAC_READ_SEARCH). They write, and are known, as their user alone.
"""

import ctypes
import os
import sys

from router.cli.main import main

_KEEP_CAPABILITIES, _AMBIENT, _RAISE = 8, 47, 2
_READ_SEARCH, _VERSION_3 = 2, 0x20080522


def _become(uid: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_KEEP_CAPABILITIES, 1, 0, 0, 0)
    os.setgroups([])
    os.setgid(uid)
    os.setuid(uid)
    mask = 1 << _READ_SEARCH
    head, sets = (ctypes.c_uint32 * 2)(_VERSION_3, 0), (ctypes.c_uint32 * 6)(mask, mask, mask, 0, 0, 0)
    if libc.capset(head, sets) or libc.prctl(_AMBIENT, _RAISE, _READ_SEARCH, 0, 0):
        raise OSError(ctypes.get_errno(), "the process may not read as root does")


if __name__ == "__main__":
    _become(int(sys.argv.pop(1)))
    main()
