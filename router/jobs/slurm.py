"""Import a batch script of Slurm as a job: each machine of the gang runs the script, and ``srun`` starts its tasks."""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, NoReturn

from pricing.problems import InvalidInputError
from router.jobs.imported_job import (
    GangRequest,
    ImportedJob,
    SoldMachines,
    as_bash,
    fill,
    is_script,
    job_name,
    run_limit,
    secret_reference,
)

_CHOSEN, _OWN = "machines are chosen by their accelerators", "a rule of the cluster"
_KEPT = "output of each rank is kept by `stepfare logs`"
# Long names of options with a value, their letter, and why they are not carried; nothing: they are read.
_VALUED: dict[str, tuple[str, str]] = {
    "account": ("A", "who pays is the job's `team`"),
    "array": ("a", ""),
    "chdir": ("D", "a folder of the cluster"),
    "comment": ("", "no such thing in a job"),
    "constraint": ("C", ""),
    "container-image": ("", ""),
    "container-mounts": ("", "put the files into the image, or name them under `data`"),
    "container-workdir": ("", "change to the folder in the command"),
    "cpus-per-gpu": ("", _CHOSEN),
    "cpus-per-task": ("c", _CHOSEN),
    "deadline": ("", "write it as `deadline`"),
    "dependency": ("d", "jobs do not wait for each other: apply it when the other has ended"),
    "error": ("e", _KEPT),
    "exclude": ("x", _OWN),
    "export": ("", ""),
    "gpus": ("G", ""),
    "gpus-per-node": ("", ""),
    "gpus-per-task": ("", ""),
    "gres": ("", ""),
    "job-name": ("J", ""),
    "mail-type": ("", "messages: docs/deploy-file.md, `notify`"),
    "mail-user": ("", "messages: docs/deploy-file.md, `notify`"),
    "mem": ("", _CHOSEN),
    "mem-per-cpu": ("", _CHOSEN),
    "mem-per-gpu": ("", _CHOSEN),
    "nice": ("", "write it as `priority`"),
    "nodelist": ("w", _OWN),
    "nodes": ("N", ""),
    "ntasks": ("n", ""),
    "ntasks-per-gpu": ("", ""),
    "ntasks-per-node": ("", ""),
    "output": ("o", _KEPT),
    "partition": ("p", _OWN),
    "qos": ("q", _OWN),
    "reservation": ("", "name a reservation of a cloud in the limits file"),
    "signal": ("", "the agent asks for a checkpoint before a machine goes: docs/checkpoints.md"),
    "switches": ("", _OWN),
    "time": ("t", ""),
    "tmp": ("", _CHOSEN),
    "tres-per-node": ("", ""),
}
_FLAGS = {"requeue": "", "no-requeue": "", "overcommit": "O", "hold": "H", "kill-on-bad-exit": "K"}
_FLAGS |= {"label": "l", "unbuffered": "u", "contiguous": ""}
_GPUS = re.compile(r"(?:gres[/:])?(?:gpu[:=]?)?(?:([A-Za-z][\w.-]*)[:=])?(\d+)(?:\(.*\))?")
_TIME = re.compile(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?")
_SRUN = re.compile(r"(?:(?<=^)|(?<=[\s;&|(`]))srun(?=[\s\\])", re.MULTILINE)
_SRUN_HOSTNAME = re.compile(r"\bsrun\b[^\n|)]*\bhostname\b[^\n|);&]*")
_SPACE = re.compile(r"(?:[ \t]|\\\n)*")
_WORD = re.compile(r"""(?:"(?:[^"\\]|\\.)*"|'[^']*'|\\[^\n]|[^\s"'\\])+""", re.DOTALL)
_SET = """\
export SLURM_JOB_NAME={name} SLURM_JOB_ID="$MASTER_PORT" SLURM_NNODES="$NNODES" SLURM_JOB_NUM_NODES="$NNODES"
export SLURM_NODEID="$NODE_RANK" SLURM_PROCID="$NODE_RANK" SLURM_LOCALID=0 SLURM_NTASKS="$((NNODES * {tasks}))"
export SLURM_NTASKS_PER_NODE={tasks} SLURM_GPUS_ON_NODE="$SKYPILOT_NUM_GPUS_PER_NODE" SLURM_SUBMIT_DIR="$PWD"
export SLURM_JOB_NODELIST="${{SKYPILOT_NODE_IPS:-$MASTER_ADDR}}" SLURM_JOBID="$MASTER_PORT"
scontrol() {{ printf '%s\\n' "$SLURM_JOB_NODELIST"; }}
"""
_TASKS = """\
slurm_tasks() {
  torchrun --no-python --nnodes="$NNODES" --node-rank="$NODE_RANK" --nproc-per-node="$1" --master-addr="$MASTER_ADDR" \\
    --master-port="$MASTER_PORT" sh -c 'export SLURM_PROCID="$RANK" SLURM_LOCALID="$LOCAL_RANK"; exec "$@"' "$@"
}
"""


@dataclass
class _Script:
    """A script in parts: its options with the line of each, its body, and what is lost of it."""

    options: dict[str, str]
    lines: dict[str, int]
    body: str
    lost: list[str] = field(default_factory=list)

    def refuse(self, option: str, what: str, remedy: str) -> InvalidInputError:
        where = str(self.lines.get(option, 1))
        return InvalidInputError.single(what, where=where, field=f"--{option}", remedy=remedy)

    def number(self, option: str) -> int | None:
        value = self.options.get(option)
        if value is None:
            return None
        if not value.isdecimal() or not int(value):
            raise self.refuse(option, f"{value!r} is no number", "write a whole number, 1 or more")
        return int(value)


def from_batch_script(text: str, sold: SoldMachines | None = None, file_name: str = "") -> ImportedJob:
    """Turn a script for sbatch into a job; without a name of its own it has that of its file, as for sbatch.

    InvalidInputError, with the line as ``where``: no line for sbatch, an array, parts of several kinds, a wrong number.
    """
    sold = sold or SoldMachines()
    if not is_script(text):
        what = "has no #SBATCH line, so it is no script for sbatch"
        raise InvalidInputError.single(what, where="1", remedy="name the script that is given to sbatch")
    script = _read(text)
    lost = script.lost
    machines = _machines(script)
    gang = _gang(script, machines, sold)
    tasks = _tasks(script, machines, gang.per_machine[0][1] if gang.per_machine else None)
    image = script.options.get("container-image")
    body, step_image = _with_steps(script.body, machines, tasks, lost)
    if "slurm_tasks" in body:
        lost.append(f"srun starts {tasks} tasks on each machine: here by torchrun, which has to be in the image")
    name = job_name(script.options.get("job-name") or file_name)
    requeued = "requeue" in script.options
    if not requeued:
        lost.append(
            "spot machines are left out, since the script may not be put back; `spot: allowed` lets the plan choose"
        )
    job: dict[str, Any] = {
        "name": name,
        "team": fill(
            "who pays" + (f"; the account is {script.options['account']}" if "account" in script.options else "")
        ),
        "steps": fill("steps in total; a script says nothing of the work in it"),
        **gang.of_sold(sold, lost).fields,
        "market": {"spot": "allowed" if requeued else "never"},
    }
    if body.strip():
        env = dict(_env(script))
        shown = shlex.quote(name if isinstance(name, str) else "job")
        prelude = _SET.format(name=shown, tasks=tasks) + (_TASKS if "slurm_tasks" in body else "")
        used = set(re.findall(r"SLURM_\w+", body)) - set(re.findall(r"SLURM_\w+", _SET))
        lost.extend(f"{variable} is used by the script and set by Slurm only" for variable in sorted(used))
        chosen = image or step_image
        job["run"] = {
            **({"image": chosen.removeprefix("docker://").replace("#", "/", 1)} if chosen else {}),
            "command": as_bash(prelude + body.strip()),
            **({"env": env} if env else {}),
            "engine": "command",
        }
    else:
        lost.append("the script has no command")
    return ImportedJob.of(job, lost)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ValueError(message)


def _parser() -> _Parser:
    parser = _Parser(add_help=False)
    for name, (letter, _) in _VALUED.items():
        parser.add_argument(f"--{name}", *([f"-{letter}"] if letter else []), dest=name)
    for name, letter in _FLAGS.items():
        parser.add_argument(
            f"--{name}", *([f"-{letter}"] if letter else []), dest=name, action="store_const", const="yes"
        )
    parser.add_argument("--exclusive", nargs="?", const="yes")
    return parser


def _parsed(words: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Return the options by their long names, and the words that are none. ValueError for one without its value."""
    found, rest = _parser().parse_known_args(list(words))
    return {name: value for name, value in vars(found).items() if value is not None}, rest


def _read(text: str) -> _Script:
    """Return the script in parts; options count up to the first command, as for sbatch."""
    script = _Script({}, {}, "")
    lines = text.splitlines()
    body = []
    reading = True
    for number, line in enumerate(lines, start=1):
        if re.match(r"#SBATCH\s+(?:hetjob|packjob)", line):
            script.lines["hetjob"] = number
            raise script.refuse("hetjob", "a job of several parts", "a gang is of one kind: write a script for each")
        if line.startswith("#SBATCH") and reading:
            try:
                given, rest = _parsed(shlex.split(line.removeprefix("#SBATCH"), comments=True))
            except ValueError as error:
                raise InvalidInputError.single(
                    f"cannot be read: {error}", where=str(number), remedy="see sbatch(1)"
                ) from None
            script.options |= given
            script.lines |= dict.fromkeys(given, number)
            script.lost.extend(f"{word}: no such thing in a job" for word in rest)
        elif not line.startswith(("#!", "#SBATCH")):
            reading = reading and (not line.strip() or line.startswith("#"))
            body.append(line)
    if "array" in script.options:
        what = f"--array {script.options['array']} makes many jobs of one script"
        raise script.refuse("array", what, "import a script for each index, with SLURM_ARRAY_TASK_ID set in it")
    reasons = {name: why for name, (_, why) in _VALUED.items() if why}
    script.lost.extend(f"--{name} {v}: {reasons[name]}" for name, v in script.options.items() if name in reasons)
    if limit := script.options.get("time"):
        script.lost.extend(_time_words(limit))
    script.body = "\n".join(body)
    if re.search(r"^\s*(?:module|ml)\s+\w", script.body, re.MULTILINE):
        script.lost.append("`module`: software of the cluster; have it in the image")
        script.body = f"module() {{ :; }}\nml() {{ :; }}\n{script.body.strip()}"
    return script


def _time_words(limit: str) -> Iterator[str]:
    """Yield what is said of the time limit: minutes, M:S, H:M:S, D-H, D-H:M or D-H:M:S."""
    match = _TIME.fullmatch(limit)
    if match is None:
        return
    days, *rest = (None if part is None else int(part) for part in match.groups())
    first, second, third = rest[0] or 0, rest[1], rest[2]
    if days is not None or third is not None:
        length = timedelta(days=days or 0, hours=first, minutes=second or 0, seconds=third or 0)
    else:
        length = timedelta(minutes=first, seconds=second or 0)
    yield run_limit("--time", timedelta(minutes=-(-length // timedelta(minutes=1))))


def _machines(script: _Script) -> int:
    stated = script.options.get("nodes")
    if stated is not None:
        least, dash, _ = stated.partition("-")
        if not least.isdecimal() or not int(least):
            raise script.refuse("nodes", f"{stated!r} is no number of machines", "write a whole number, 1 or more")
        if dash:
            script.lost.append(f"--nodes {stated}: a gang has one size; the least is taken")
        return int(least)
    for whole, part in (("ntasks", "ntasks-per-node"), ("gpus", "gpus-per-node")):
        total = _count(script, whole)
        each = _count(script, part)
        if total and each:
            return -(-total // each)
    return 1


def _count(script: _Script, option: str) -> int | None:
    if option not in script.options:
        return None
    return _typed(script, option)[1] if option.startswith("gpus") else script.number(option)


def _typed(script: _Script, option: str) -> tuple[str, int]:
    """Return type and number of GPUs of an option; no type where it states none."""
    words = [word for word in script.options[option].split(",") if option.startswith("gpus") or "gpu" in word]
    matches = [_GPUS.fullmatch("1" if word == "gpu" else word) for word in words]
    if len(words) != 1 or matches[0] is None:
        what = f"{script.options[option]!r} is no number of GPUs of one type"
        raise script.refuse(option, what, "write TYPE:NUMBER, e.g. h100:8")
    return matches[0][1] or "", int(matches[0][2])


def _gang(script: _Script, machines: int, sold: SoldMachines) -> GangRequest:
    option = next(
        (o for o in ("gpus-per-node", "gres", "tres-per-node", "gpus-per-task", "gpus") if o in script.options), None
    )
    if option in ("gres", "tres-per-node") and "gpu" not in script.options[option]:
        script.lost.append(f"--{option} {script.options[option]}: {_CHOSEN}")
        option = "gpus" if "gpus" in script.options else None
    kind, count = ("", None) if option is None else _typed(script, option)
    if option == "gpus" and count is not None:
        count, rest = divmod(count, machines)
        if rest:
            raise script.refuse(
                "gpus", f"{script.options['gpus']} are not whole machines of {machines}", "write a multiple"
            )
    if option == "gpus-per-task" and count is not None:
        count *= _tasks(script, machines, None)
    words = re.split(r"[^\w.-]+", script.options.get("constraint", ""))
    found = [name for word in (kind, *words) if word and (name := sold.accelerator(word))]
    if "constraint" in script.options and not (found and not kind):
        script.lost.append(f"--constraint {script.options['constraint']}: {_OWN}")
    if count and found:
        return GangRequest(((found[0], count),), machines, rdma=False)
    names = sold.candidates(kind) if kind else []
    asked = f"{count or 'no'} {kind or 'GPUs'} on each of {machines}"
    hint = " or ".join(f"{name}:{(count or 0) * machines}" for name in names) if count else ""
    return GangRequest(
        (), machines, rdma=False, hint=f"accelerators in total, {hint or 'e.g. H100:8'}; asked for is {asked}"
    )


def _tasks(script: _Script, machines: int, accelerators: int | None) -> int:
    if stated := script.number("ntasks-per-node"):
        return stated
    if total := script.number("ntasks"):
        return max(1, total // machines)
    if (stated := script.number("ntasks-per-gpu")) and accelerators:
        return stated * accelerators
    return 1


def _env(script: _Script) -> Iterator[tuple[str, str]]:
    """Yield what ``--export`` sets; a name without a value becomes a reference to a variable of whoever applies."""
    exported = script.options.get("export", "ALL").split(",")
    for word in exported:
        name, sign, value = word.partition("=")
        if word in ("ALL", "NONE", "NIL", ""):
            continue
        yield name, value if sign else secret_reference(name)
    if "ALL" in exported:
        script.lost.append("variables of your shell, which sbatch passes on: name those that it needs under `run.env`")


def _with_steps(body: str, machines: int, tasks: int, lost: list[str]) -> tuple[str, str | None]:
    """Return the body with each ``srun`` replaced by what starts its tasks on this machine, and the image of one.

    The address of one machine, which scripts ask for by ``srun hostname``, is that of the first.
    """
    text = _SRUN_HOSTNAME.sub('echo "$MASTER_ADDR"', body)
    parts, at, image, steps = [], 0, None, 0
    for match in _SRUN.finditer(text):
        line = text[text.rfind("\n", 0, match.start()) + 1 : match.start()]
        if match.start() < at or line.lstrip().startswith("#"):
            continue
        words, end = _options_at(text, match.end())
        try:
            options, _ = _parsed(words)
        except ValueError:
            options = {}
        image = image or options.get("container-image")
        steps += 1
        each, total = options.get("ntasks-per-node", ""), options.get("ntasks", "")
        number = int(each) if each.isdecimal() else max(1, int(total) // machines) if total.isdecimal() else tasks
        if machines > 1 and (options.get("nodes") == "1" or "nodelist" in options):
            lost.append(f"srun {' '.join(words)}: a step on one machine; here each machine runs it")
        parts += [text[at : match.start()], f"slurm_tasks {number} " if number > 1 else ""]
        at = end
    if machines > 1 and not steps and body.strip():
        lost.append("the script has no srun: Slurm runs it on the first machine alone, here each machine does")
    elif machines > 1:
        lost.append("lines outside srun: Slurm runs them on the first machine alone, here each machine does")
    return "".join((*parts, text[at:])), image


def _options_at(text: str, at: int) -> tuple[list[str], int]:
    """Return the options of ``srun`` that begin at a place in the text, and where its command begins."""
    letters = {letter for letter, _ in _VALUED.values() if letter}
    words: list[str] = []
    waits = False
    while True:
        space = _SPACE.match(text, at)
        at = space.end() if space else at
        word = _WORD.match(text, at)
        if word is None or not (waits or word[0].startswith("-")):
            return words, at
        shown = shlex.split(word[0]) if word[0].count('"') % 2 == 0 and word[0].count("'") % 2 == 0 else [word[0]]
        words += shown
        at = word.end()
        name = word[0].lstrip("-")
        waits = not waits and "=" not in name and (name in _VALUED if word[0].startswith("--") else name in letters)
