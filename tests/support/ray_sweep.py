"""A sweep of 200 small plans on a Ray cluster and on processes, for an interpreter that has Ray.

``python -m tests.support.ray_sweep ray://HOST:PORT`` prints JSON: digests of the plans of each engine, and how the
cluster bore an interruption and a refusal.
"""

from __future__ import annotations

import hashlib
import json
import sys

from pricing.problems import InvalidInputError
from router.app.parallel import Engine, run_tasks
from router.app.plan_rerun import run_what_if
from router.planning.document.plan_json import plan_to_json
from router.planning.planner import make_plan
from router.planning.what_if.what_if import Variant
from router.planning.what_if.what_if_comparison import WhatIf
from router.planning.what_if.what_if_syntax import parse_change, parse_sweep, vary
from router.render.what_if_text import as_json
from tests.support.what_if_requests import small_request

DEADLINES = ",".join(f"{hours:+}h" for hours in range(-8, 12, 2))
PRICES = ",".join(f"{tenths / 10:.1f}" for tenths in range(5, 45, 2))


def ignore(_done: int, _total: int) -> None:
    """Show no progress."""


def node_of(_shared: None, _task: int) -> str:
    """Make a plan, which takes a while, and return the id of the Ray node on which the task runs."""
    import ray

    make_plan(small_request())
    return str(ray.get_runtime_context().get_node_id())


def digests(found: WhatIf) -> dict[str, object]:
    """Return the number of plans, a digest of all their bytes, and one of the comparison."""
    plans = "".join(plan_to_json(result.plan) for result in found.results)
    texts = (plans, as_json(found))
    return {"plans": len(found.results), "digests": [hashlib.sha256(text.encode()).hexdigest() for text in texts]}


def interrupt(done: int, _total: int) -> None:
    """Press Ctrl-C when the first plan is made."""
    if done:
        raise KeyboardInterrupt


def was_interrupted(variants: tuple[Variant, ...], address: str) -> bool:
    """Return whether the sweep ends with the interruption."""
    try:
        run_what_if(small_request(), variants, engine=Engine(address, 0), advance=interrupt)
    except KeyboardInterrupt:
        return True
    return False


def refuse(_shared: None, task: int) -> None:
    raise InvalidInputError.single(f"task {task} is refused", field="--price")


def refusal(address: str) -> str:
    """Return the error of a task as it arrives here."""
    try:
        run_tasks(refuse, None, [7], Engine(address, 1), ignore)
    except InvalidInputError as error:
        return str(error)
    return ""


def main(address: str) -> None:
    # Without its reserved machine every job costs something.
    fixed = parse_change("--drop-region", "aws/south-1")
    variants = vary([fixed], [parse_sweep(f"deadline all {DEADLINES}"), parse_sweep(f"price spot {PRICES}")])
    engines = {"ray": Engine(address, 0), "processes": Engine(None, 2)}
    interrupted = was_interrupted(variants, address)
    found = {name: run_what_if(small_request(), variants, engine=engine) for name, engine in engines.items()}
    document = {name: digests(each) for name, each in found.items()} | {
        "interrupted": interrupted,
        "refusal": refusal(address),
        "costs": len({result.plan.cost_usd for result in found["ray"].results}),
        "nodes": len(set(run_tasks(node_of, None, range(8), Engine(address, 0), ignore))),
    }
    print(json.dumps(document))


if __name__ == "__main__":
    main(sys.argv[1])
