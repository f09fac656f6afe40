"""What a machine without cloud-init is told: a Python script that brings the node agent up where it stands. Pure."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

from router.agent.config import Config, parse
from router.running.bootstrap import LARGEST, AgentAt, Bootstrap, TooLarge

# What the script writes beside itself and nobody needs when the machine is gone.
SECRET_FILES = ("token", "env.json")

_HERE = "@folder@"  # the script knows where it stands, we do not

_SCRIPT = '''\
#!/usr/bin/env python3
"""stepfare: rank {rank} of {attempt}."""
import hashlib, json, os, ssl, sys, time, urllib.request
FOLDER = os.environ.get("STEPFARE_NODE_FOLDER") or os.path.dirname(os.path.abspath(__file__))
FILES = {files}
os.umask(0o077)
for name, text in FILES.items():
    with open(os.path.join(FOLDER, name), "w") as stream:
        stream.write(text.replace({here}, FOLDER) if name == "agent.json" else text)
agent = os.path.join(FOLDER, "agent.pyz")
limit = time.monotonic() + {seconds}
context = ssl.create_default_context(cafile={ca}) if {url}.startswith("https") else None
while True:
    try:
        with urllib.request.urlopen({url}, timeout=10, context=context) as answer:
            data = answer.read(1 << 20)
        if hashlib.sha256(data).hexdigest() != {sha256}:
            sys.exit("stepfare: the agent is not the one that was ordered")
        break
    except OSError as error:
        if time.monotonic() > limit:
            sys.exit("stepfare: no agent to be had: %s" % error)
        time.sleep(0.5)
with open(agent, "wb") as stream:
    stream.write(data)
os.execv(sys.executable, [sys.executable, "-I", agent, os.path.join(FOLDER, "agent.json")])
'''


def node_script(spec: Bootstrap, agent: AgentAt) -> str:
    """The script, the same text for the same spec; it fetches the agent. Raises :class:`TooLarge`, and ``BadConfig``
    for a configuration that the agent would refuse. ``local_nvme`` is not looked at: such machines are as they are."""
    config = _where_it_stands(spec)
    files = {
        "agent.json": json.dumps(_changed(config)) + "\n",
        "token": f"{spec.token}\n",
        "env.json": json.dumps({"plain": dict(spec.plain), "secret": dict(spec.secret)}) + "\n",
    }
    if spec.ca is not None:
        files["ca.pem"] = spec.ca
    text = _SCRIPT.format(
        rank=config.rank,
        attempt=config.attempt,
        files=repr(files),
        here=repr(_HERE),
        seconds=repr(config.gang_seconds),
        ca='os.path.join(FOLDER, "ca.pem")' if spec.ca is not None else "None",
        url=repr(agent.url),
        sha256=repr(agent.sha256),
    )
    if len(text.encode()) > LARGEST:
        raise TooLarge(
            f"{len(text.encode()):,} bytes for the node's script, at most {LARGEST:,} fit: "
            "shorten the command and the environment of the job"
        )
    return text


def _where_it_stands(spec: Bootstrap) -> Config:
    config = replace(
        spec.config,
        workdir=f"{_HERE}/work",
        token_file=f"{_HERE}/token",
        env_file=f"{_HERE}/env.json",
        ca_file=f"{_HERE}/ca.pem" if spec.ca is not None else None,
        log_folder=f"{_HERE}/log.d",
        spool_folder=f"{_HERE}/spool",
    )
    return parse(json.loads(json.dumps(asdict(config))))


def _changed(config: Config) -> dict[str, object]:
    bare = Config(
        attempt="", job="", rank=-1, nodes=0, command="", workdir="", coordinator="", token_file="", log_folder="",
        spool_folder="",
    )  # fmt: skip
    default = asdict(bare)
    return {name: value for name, value in asdict(config).items() if value != default[name]}
