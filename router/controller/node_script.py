"""Render the Python script that starts the node agent on a machine without cloud-init. Pure."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from urllib.parse import urlsplit

from router.agent.config import AgentConfig, parse_config
from router.agent.protocol import LOOPBACK
from router.controller.bootstrap import (
    MAX_USER_DATA_BYTES,
    AgentDownload,
    Bootstrap,
    UserDataTooLargeError,
    non_default_settings,
)

# Files with secrets that the script writes beside itself; nobody needs them once the machine is gone.
SECRET_FILES = ("token", "env.json")

# Paths are relative here because only the script knows its own folder.
_PATHS = ("workdir", "token_file", "env_file", "ca_file", "log_folder", "spool_folder")

_SCRIPT = '''\
#!/usr/bin/env python3
"""stepfare: rank {rank} of {attempt}."""
import hashlib, http.client, json, os, ssl, sys, time, urllib.request
FOLDER = os.environ.get("STEPFARE_NODE_FOLDER") or os.path.dirname(os.path.abspath(__file__))
FILES = {files}
os.umask(0o077)
config = json.loads(FILES["agent.json"])
for name in {paths}:
    if name in config:
        config[name] = os.path.join(FOLDER, config[name])
FILES["agent.json"] = json.dumps(config)
for name, text in FILES.items():
    with open(os.path.join(FOLDER, name), "w", encoding="utf-8") as stream:
        stream.write(text)
agent = os.path.join(FOLDER, "agent.pyz")
limit = time.monotonic() + {seconds}
handlers = []
if {url}.startswith("https"):
    handlers.append(urllib.request.HTTPSHandler(context=ssl.create_default_context(cafile={ca})))
if {loopback}:
    handlers.append(urllib.request.ProxyHandler({{}}))
opener = urllib.request.build_opener(*handlers)
while True:
    try:
        with opener.open({url}, timeout=10) as answer:
            data = answer.read()
        if hashlib.sha256(data).hexdigest() != {sha256}:
            sys.exit("stepfare: the agent is not the one that was ordered")
        break
    except (OSError, http.client.HTTPException) as error:
        if time.monotonic() > limit:
            sys.exit("stepfare: no agent to be had: %s" % error)
        time.sleep(0.5)
with open(agent, "wb") as stream:
    stream.write(data)
os.execv(sys.executable, [sys.executable, "-I", agent, os.path.join(FOLDER, "agent.json")])
'''


def node_script(spec: Bootstrap, agent: AgentDownload) -> str:
    """Return the script, which downloads and starts the agent; the same spec always gives the same text.

    Raises :class:`UserDataTooLargeError`, and ``BadConfig`` for a configuration that the agent would refuse.
    ``local_nvme`` is ignored: such machines keep their disks as they are.
    """
    config = _script_config(spec)
    files = {
        "agent.json": json.dumps(non_default_settings(config)) + "\n",
        "token": f"{spec.token}\n",
        "env.json": json.dumps({"plain": dict(spec.plain), "secret": dict(spec.secret)}) + "\n",
    }
    if spec.ca is not None:
        files["ca.pem"] = spec.ca
    text = _SCRIPT.format(
        rank=config.rank,
        attempt=config.attempt,
        files=repr(files),
        paths=repr(_PATHS),
        seconds=repr(config.gang_seconds),
        ca='os.path.join(FOLDER, "ca.pem")' if spec.ca is not None else "None",
        url=repr(agent.url),
        loopback=repr(urlsplit(agent.url).hostname in LOOPBACK),
        sha256=repr(agent.sha256),
    )
    if len(text.encode()) > MAX_USER_DATA_BYTES:
        raise UserDataTooLargeError(
            f"{len(text.encode()):,} bytes for the node's script, at most {MAX_USER_DATA_BYTES:,} fit: "
            "shorten the command and the environment of the job"
        )
    return text


def _script_config(spec: Bootstrap) -> AgentConfig:
    config = replace(
        spec.config,
        workdir="work",
        token_file="token",
        env_file="env.json",
        ca_file="ca.pem" if spec.ca is not None else None,
        log_folder="log.d",
        spool_folder="spool",
    )
    return parse_config(json.loads(json.dumps(asdict(config))))
