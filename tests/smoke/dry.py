"""A dry run: the clouds' services and machines on this computer.

AWS is moto, behind it the prices of tests/support/aws_service.py; Google Cloud and Azure are the services of
tests/support. Terraform runs with the stand-in providers under the real schemas. What runs on a machine is its agent,
started from its user data; a metadata service announces what the call by hand ordered, and the machine goes then.
"""

from __future__ import annotations

import base64
import gzip
import io
import json
import logging
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

import boto3
from botocore.exceptions import ClientError
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.wrappers import Request, Response

from router.agent.rendezvous import find_free_port
from tests.smoke.notices import Account
from tests.support import aws_service, azure_service, gcp_service
from tests.support.azure_estate import SUBSCRIPTION, Subscription
from tests.support.clouds import clouds_file, environment
from tests.support.gcp_estate import PROJECT, Project
from tests.support.metadata_service import MetadataService
from tests.support.moto_machines import Look, Machines, instances, played
from tests.support.repository import ROOT
from tests.support.service import in_thread
from tests.support.terraform_moto import IMAGE, cloud
from tests.support.terraform_standin import mirror, standin_python

# Less than a cloud gives, and time enough to save.
NOTICE_S = 20.0
REGIONS = {"aws": ["us-east-1", "us-east-2"], "gcp": ["us-central1"], "azure": ["eastus", "eastus2", "westus3"]}
# What nvidia-smi shows of the smallest machines.
GPUS = {"aws": ["Tesla T4, 595.71.05"], "gcp": ["NVIDIA L4, 580.126.16"], "azure": ["Tesla T4, 580.126.16"]}
_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGm9n0TkfYV3vXQxq0cVn0b7cOiyQn0mS7l1v2YVh0aB smoke"
NOT_PLAYED = (
    ("providers", "their own calls: stand-ins with their schemas take what Terraform sends"),
    ("machine", "boot, image, driver, poweroff: its agent runs here, nvidia-smi is a text"),
    ("identity", "credentials and permissions: the services here ask for none"),
    ("quotas", "whether an account may have this machine"),
    ("bucket", "checkpoints go to a folder: there is no identity to write a bucket with"),
    ("https", "machines call the coordinator at this computer's own address"),
)


@dataclass
class Stage:
    """The stand-ins of a dry run for an account."""

    account: Account
    environment: dict[str, str]
    clouds: Path
    deploy: dict[str, Any]


@contextmanager
def stage(name: str, folder: Path) -> Iterator[Stage]:
    """Play a cloud while the block runs; all of it lies below ``folder``."""
    # It would tell of each call.
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    with ExitStack() as stack:
        metadata = stack.enter_context(MetadataService().running())
        interrupt = partial(_announce, name, metadata)
        front, look, variables, mirrored = _CLOUDS[name](stack, folder, interrupt)
        url = stack.enter_context(in_thread(front))
        machines = Machines(
            look, folder / "machines", gpus=GPUS[name], settings=lambda machine: _settings(metadata, machine)
        )
        stack.enter_context(played(machines))
        home = folder / "home"
        home.mkdir(parents=True, exist_ok=True)
        (folder / "checkpoints").mkdir(exist_ok=True)
        port = find_free_port()
        settings: dict[str, Any] = {"checkpoint_url": (folder / "checkpoints").as_uri()}
        settings |= {"aws": {"image": IMAGE}, "azure": {"ssh_public_key": _KEY}}.get(name, {})
        deploy = {
            "coordinator": {"listen": f"127.0.0.1:{port}", "url": f"http://127.0.0.1:{port}"},
            "plugin_mirror": str(mirrored),
            "pass_environment": ["PYTHONPATH", "STEPFARE_STANDIN_CLOUD"],
            # A machine that is ended by hand is missed sooner than after five minutes.
            "timeouts": {"lost": "1m"},
            "clouds": {name: settings},
        }
        own = {"PYTHONPATH": str(ROOT), "STEPFARE_STANDIN_CLOUD": url, **variables}
        if name == "aws":
            del own["STEPFARE_STANDIN_CLOUD"]
        account = Account(name, SUBSCRIPTION, "arn:aws:iam::123456789012:role/smoke", url)
        more = {"gcp": {"options": {"project": PROJECT}}} if name == "gcp" else {}
        yield Stage(account, {**environment(home), **own}, clouds_file(folder, {name: url}, **more), deploy)


def _settings(metadata: MetadataService, machine: str) -> Mapping[str, Any]:
    name = machine.rpartition("/")[2]
    url, _ = metadata.add(name)
    return {"metadata_url": url, "power_off": False, "notice_poll_seconds": 0.5}


def _announce(cloud: str, metadata: MetadataService, machine: str, remove: Callable[[], object]) -> None:
    """Say it to the machine as its cloud does, and take it when the time is over."""
    told = metadata.machines[machine.rpartition("/")[2]]
    if cloud == "aws":
        told.interrupt(NOTICE_S)
    elif cloud == "gcp":
        told.preempt()
    else:
        told.event(seconds=NOTICE_S)
    timer = threading.Timer(NOTICE_S, remove)
    timer.daemon = True
    timer.start()


Interrupt = Callable[[str, Callable[[], object]], None]
Played = tuple[WSGIApplication, Look, dict[str, str], Path]

_OF_PRICES = re.compile(
    r"Describe(Regions|AvailabilityZones|InstanceTypes|InstanceTypeOfferings|SpotPriceHistory|CapacityBlockOfferings"
    r"|CapacityReservations)|GetSpotPlacementScores|GetProducts|ListServiceQuotas|"
)


def _aws(stack: ExitStack, folder: Path, interrupt: Interrupt) -> Played:
    made = stack.enter_context(cloud(folder))
    prices = aws_service.make_app(regions=REGIONS["aws"], history_rows=2_000, history_days=2)
    dispatcher: Any = DomainDispatcherApplication
    moto: WSGIApplication = dispatcher(create_backend_app)
    look = instances(made.url, REGIONS["aws"])

    def front(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        path = environ["PATH_INFO"]
        if path.startswith("/experiment"):
            if path == "/experiments":
                for machine in look():
                    interrupt(machine, partial(_terminate, made.url, machine))
            thing = "experiment" if path == "/experiments" else "experimentTemplate"
            return _json({thing: {"id": "EXT1"}})(environ, start_response)
        request = Request(environ)
        form = dict(parse_qsl(request.get_data(parse_form_data=False).decode()))
        environ["wsgi.input"] = io.BytesIO(request.get_data())
        target = request.headers.get("X-Amz-Target", "").partition(".")[2]
        action = target or form.get("Action", "")
        app = prices if _OF_PRICES.fullmatch(action) else moto
        return app(environ, start_response)

    variables = {name: value for name, value in made.environment.items() if name != "PATH"}
    assert made.plugins.mirror is not None
    return front, look, variables, made.plugins.mirror


def _terminate(url: str, machine: str) -> None:
    for region in REGIONS["aws"]:
        ec2 = boto3.client("ec2", region, endpoint_url=url, aws_access_key_id="x", aws_secret_access_key="x")
        with suppress(ClientError):
            ec2.terminate_instances(InstanceIds=[machine])


_STANDIN = re.compile(r"/_standin/(\w+)/(.+)")
_ESTATE = re.compile(
    r".*/(aggregated/(instances|disks|subnetworks|resourcePolicies)|global/(networks|firewalls)"
    r"|zones/[^/]+/(operations|instances|disks)/[^/]+)"
)


def _gcp(_: ExitStack, folder: Path, interrupt: Interrupt) -> Played:
    prices = gcp_service.make_app(regions=REGIONS["gcp"], zones=2, cpu_types=5, skus=300)
    estate, texts = Project(), dict[str, str]()

    def standin(method: str, path: str, state: Mapping[str, Any]) -> bool:
        if method == "PUT":
            place = path.removeprefix(f"projects/{PROJECT}/").split("/")
            texts[path] = state["metadata"]["user-data"]
            estate.machine(place[3], state["labels"], place[1])
        if method == "DELETE":
            estate.remove(path)
        return path in estate.things or method == "DELETE"

    def front(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        request = Request(environ)
        if found := _STANDIN.fullmatch(request.path):
            return _told(request, found[2], standin)(environ, start_response)
        if request.path.endswith("/simulateMaintenanceEvent"):
            path = request.path.removeprefix("/compute/v1/").rpartition("/")[0]
            interrupt(path, partial(estate.remove, path))
            return _json({"name": "operation-notice", "status": "DONE"})(environ, start_response)
        return (estate if _ESTATE.fullmatch(request.path) else prices)(environ, start_response)

    def look() -> Mapping[str, Callable[[], str]]:
        return {path: partial(texts.__getitem__, path) for path in estate.machines()}

    variables = {"GOOGLE_PROJECT": PROJECT}
    return front, look, variables, _mirror(folder)


_OF_MACHINES = re.compile(r"/resourcegroups(/|$)|/virtualmachine(s|scalesets)(/|$)")


def _azure(_: ExitStack, folder: Path, interrupt: Interrupt) -> Played:
    prices = azure_service.make_app(regions=REGIONS["azure"], price_rows=60, sku_rows=40)
    estate, texts = Subscription(), dict[str, str]()

    def standin(method: str, path: str, state: Mapping[str, Any]) -> bool:
        parts = path.split("/")
        if method == "PUT" and "custom_data" in state:
            texts[path] = gzip.decompress(base64.b64decode(state["custom_data"])).decode()
            estate.machine(parts[4], parts[8], state["tags"], state["location"])
        elif method == "PUT":
            estate.group(parts[4], state["tags"], state["location"])
        if method == "DELETE":
            estate.remove(path)
        return path.lower() in estate.things or method == "DELETE"

    def front(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        request = Request(environ)
        if found := _STANDIN.fullmatch(request.path):
            return _told(request, found[2], standin)(environ, start_response)
        if request.path.endswith("/simulateEviction"):
            path = request.path.rpartition("/")[0]
            interrupt(path, partial(estate.remove, path))
            return Response(status=204)(environ, start_response)
        path = request.path.lower()
        ours = _OF_MACHINES.search(path) and "capacityreservation" not in path
        return (estate if ours else prices)(environ, start_response)

    def look() -> Mapping[str, Callable[[], str]]:
        return {path: partial(texts.__getitem__, path) for path in estate.machines()}

    return front, look, {"ARM_SUBSCRIPTION_ID": SUBSCRIPTION}, _mirror(folder)


def _told(request: Request, path: str, standin: Callable[[str, str, Mapping[str, Any]], bool]) -> Response:
    state = json.loads(request.get_data() or b"{}")
    return Response(status=200 if standin(request.method, unquote(path), state) else 404)


def _json(content: object) -> Response:
    return Response(json.dumps(content), mimetype="application/json")


def _mirror(folder: Path) -> Path:
    mirror(folder, standin_python())
    return folder / "mirror"


_CLOUDS: dict[str, Callable[[ExitStack, Path, Interrupt], Played]] = {"aws": _aws, "gcp": _gcp, "azure": _azure}
