"""A host that answers SSH on a free port of 127.0.0.1 and runs what it is told on this machine, for one key.

    python ssh_host.py FOLDER

FOLDER is the home of whoever logs in. Writes there `key` (the private key that it lets in), then `host.json` with its
port and its own public key. Runs until it is ended.
"""
# The package below is in the stand-ins' environment only.
# mypy: disable-error-code="import-not-found"
# mypy: allow-subclassing-any

from __future__ import annotations

import asyncio
import json
import os
import shlex
import sys
from pathlib import Path
from typing import Any

import asyncssh

LOGIN = "pool"


async def receive(process: Any, folder: Path) -> None:
    """The receiving end of scp: files, one after the other, into a folder."""
    process.stdout.write(b"\0")
    while line := await process.stdin.readline():
        if line.startswith(b"C"):
            mode, size, name = line[1:].decode().split(maxsplit=2)
            process.stdout.write(b"\0")
            content = await process.stdin.readexactly(int(size) + 1)
            (folder / name.strip()).write_bytes(content[:-1])
            (folder / name.strip()).chmod(int(mode, 8))
        process.stdout.write(b"\0")
    process.exit(0)


async def run(process: Any) -> None:
    """One command of a session, by sh."""
    words = shlex.split(process.command)
    if words[0] == "scp":
        await receive(process, Path(words[-1]))
        return
    child = await asyncio.create_subprocess_exec(
        *("sh", "-c", process.command),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await child.communicate()
    process.stdout.write(out)
    process.stderr.write(err)
    process.exit(child.returncode)


async def serve(home: Path) -> None:
    own, theirs = (asyncssh.generate_private_key("ssh-ed25519") for _ in range(2))
    # What is copied with a relative name, and what commands write, lands in the home.
    os.chdir(home)
    os.environ["HOME"] = str(home)
    server = await asyncssh.listen(
        *("127.0.0.1", 0),
        server_host_keys=[own],
        authorized_client_keys=asyncssh.import_authorized_keys(theirs.export_public_key().decode()),
        process_factory=run,
        encoding=None,
    )
    (home / "key").touch(mode=0o600)
    (home / "key").write_bytes(theirs.export_private_key())
    described = {"port": server.get_port(), "user": LOGIN, "host_key": own.export_public_key().decode().strip()}
    (home / "host.new").write_text(json.dumps(described))
    (home / "host.new").rename(home / "host.json")
    await server.wait_closed()


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1]).resolve()))
