"""Open what provisioning and releasing machines needs: files, state, Terraform, clouds, and the coordinator."""

from __future__ import annotations

import hashlib
import http.client
import json
import ssl
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from pricing.book_file import embedded_book
from pricing.places import PROVISIONABLE_CLOUDS
from pricing.problems import InvalidInputError
from providers.caller import Caller
from providers.fleet import Fleet
from providers.notices import NoticeQueue
from providers.registry import open_fleet, open_notices
from providers.session import QUEUE_OPTION, Session
from providers.static.pool import Pool
from router import installed_version
from router.agent.protocol import LOOPBACK
from router.app.settings import HEALTH_SECONDS, PORT, SANDBOX, AppSettings, local_url
from router.controller.context import ControllerContext, Reporter
from router.controller.workspace.bootstrap import CoordinatorEndpoint, pack_agent
from router.controller.workspace.workspaces import GRACE_SECONDS
from router.coordinator.handlers import AgentMessageHandler
from router.deploy.cloud_settings import HostEntry
from router.deploy.notify_settings import resolve_reference
from router.prices.cloud_settings import LoadedClouds
from router.state.errors import LeaseHeldError
from router.state.lock_owner import LockOwner
from router.state.store import StateStore
from terraform.engine import find_engine
from terraform.module_metadata import module_facts
from terraform.runner import CommandLimits, Runner
from terraform.spec import Host
from terraform.workdir import PluginSources

# The interval is shorter than the time after which a machine is taken to be lost.
EVERY_S = 1.0


_HELD_SECONDS = 0.05


@contextmanager
def serve_as_standby(
    is_there: Callable[[], bool], serve: Callable[[], AbstractContextManager[object]], fails: type[Exception]
) -> Iterator[None]:
    """Serve from this process while the block runs and no other process serves.

    Where serving ``fails`` it is tried again: the port may be held by a process that is ending, or by a quicker one.
    """
    ended = threading.Event()

    def stand_by() -> None:
        while not ended.wait(EVERY_S):
            if is_there():
                continue
            try:
                with serve():
                    ended.wait()
            except fails:
                continue

    thread = threading.Thread(target=stand_by, name="standing by", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def claim_shared_port(
    store: StateStore, mine: int, wall_clock: Callable[[], datetime], is_there: Callable[[int], bool]
) -> int:
    """Return the port that machines are to call.

    Of several processes that begin at the same moment, it is the port of the first.
    """
    while True:
        try:
            with store.lease(PORT, LockOwner.of_this_process(), wall_clock):
                recorded_port = int(store.values.get(PORT) or 0)
                if recorded_port not in (0, mine) and is_there(recorded_port):
                    return recorded_port
                store.values.set(PORT, str(mine))
                return mine
        except LeaseHeldError:
            time.sleep(_HELD_SECONDS)


_ASK_SECONDS = 120.0


# A queue is listened to for as long as the process runs.
_LISTEN_SECONDS = timedelta(days=3650).total_seconds()


_TOKEN_FIELD = "coordinator.metrics_token"


# Terraform and its providers read these: network access, user identity, credentials.
_PASSED = frozenset(
    {
        "PATH",
        "HOME",
        "USER",
        "LOGNAME",
        "TMPDIR",
        "LANG",
        "LC_ALL",
        "SSH_AUTH_SOCK",
        "HTTP_PROXY",
        "HTTPS_PROXY",
        "NO_PROXY",
        "http_proxy",
        "https_proxy",
        "no_proxy",
        "SSL_CERT_FILE",
        "SSL_CERT_DIR",
        "SYSTEMROOT",
    }
)


_PASSED_BEGINNINGS = ("AWS_", "GOOGLE_", "CLOUDSDK_", "GCLOUD_", "ARM_", "AZURE_", "PG", "TF_HTTP_", "TF_TOKEN_")


def open_controller(
    opened: AppSettings,
    store: StateStore,
    machines_home: CoordinatorEndpoint,
    clock: Callable[[], datetime],
    wall_clock: Callable[[], datetime],
    tell: Reporter,
) -> ControllerContext:
    """Return the controller's context with everything put together.

    Raises EngineMissingError, EngineTooOldError.
    """
    deploy = opened.deploy
    environment = terraform_environment(opened)
    engine = find_engine(deploy.engine, environment.get("PATH", ""))
    timeouts = deploy.timeouts
    limits = CommandLimits(apply_s=timeouts.apply.total_seconds(), destroy_s=timeouts.destroy.total_seconds())
    cache, mirror = deploy.plugin_cache or str(opened.folder / "plugins"), deploy.plugin_mirror
    return ControllerContext(
        store=store,
        runner=Runner(engine, environment, limits),
        runs=opened.runs,
        deploy=deploy,
        home=machines_home,
        clock=clock,
        wall_clock=wall_clock,
        fleet=lambda cloud: _fleet(cloud, opened.clouds, clock()),
        tell=tell,
        plugins=PluginSources(Path(cache).expanduser().absolute(), Path(mirror).expanduser() if mirror else None),
        pool=_pool(opened),
        environment=opened.environment,
    )


def terraform_environment(opened: AppSettings) -> dict[str, str]:
    """Return the environment of Terraform: only variables that it is known to need."""
    allowed_names = {*_PASSED, *opened.deploy.pass_environment}
    environment = {
        name: value
        for name, value in opened.environment.items()
        if name in allowed_names or name.startswith(_PASSED_BEGINNINGS)
    }
    for cloud in sorted(PROVISIONABLE_CLOUDS & set(opened.clouds.clouds.clouds)):
        given = opened.clouds.settings(cloud).options
        for option, variable in module_facts(cloud).variables.items():
            if option in given:
                environment.setdefault(variable, given[option])
    # The agent's own grace period, and the time to report its result.
    environment["STEPFARE_GRACE_SECONDS"] = str(int(GRACE_SECONDS) + 10)
    environment[SANDBOX] = str(opened.sandbox)
    return environment


def _fleet(cloud: str, clouds: LoadedClouds, now: datetime) -> Fleet | None:
    return open_fleet(cloud, Session(clouds.settings(cloud), embedded_book(), now, Caller(cloud, _ASK_SECONDS)))


def _pool(opened: AppSettings) -> Mapping[tuple[str, str], tuple[Host, ...]]:
    hosts: dict[tuple[str, str], tuple[Host, ...]] = {}
    for cloud, pool in opened.clouds.documents.items():
        for group in pool.hosts if isinstance(pool, Pool) else ():
            entries = opened.deploy.cloud(cloud, group.site).hosts
            found = tuple(_host(address, entries.get(address)) for address in group.addresses)
            place = (group.site, group.machine)
            hosts[place] = (*hosts.get(place, ()), *found)
    return hosts


def _host(address: str, entry: HostEntry | None) -> Host:
    if entry is None:
        return Host(address)
    return Host(address, entry.port, entry.user, entry.host_key, entry.private_address)


@contextmanager
def open_coordinator(
    opened: AppSettings, store: StateStore, clock: Callable[[], datetime], wall_clock: Callable[[], datetime]
) -> Iterator[CoordinatorEndpoint]:
    """Run a coordinator for as long as the block runs, and yield where machines call it.

    One that serves the same state already is used, and replaced by our own once it ends; else our own is started.
    Raises ListenError, InvalidInputError.
    """
    from router.coordinator.app import make_app
    from router.coordinator.metrics import Metrics
    from router.coordinator.server import CoordinatorServer, ListenError

    entry = opened.deploy.coordinator
    agent = pack_agent()
    sha256 = hashlib.sha256(agent).hexdigest()
    authority = _text(entry.ca) if entry.ca else None
    port = entry.port or int(store.values.get(PORT) or 0)
    certificate, key = (Path(name).expanduser() if name else None for name in (entry.certificate, entry.key))
    token = resolve_reference(entry.metrics_token, opened.environment, _TOKEN_FIELD) if entry.metrics_token else ""

    @contextmanager
    def serving(port: int) -> Iterator[CoordinatorServer]:
        attendance = AgentMessageHandler(
            store, opened.logs, clock, wall_clock=wall_clock, stores=opened.deploy.stores_of
        )
        metrics = Metrics(store, clock, wall_clock, version=installed_version(), token=token)
        app = make_app(attendance, agent, store.id, metrics)
        try:
            with CoordinatorServer(app, entry.host, port, certificate, key) as server:
                yield server
        finally:
            attendance.flush()

    def is_there(port: int) -> bool:
        return is_serving(local_url(entry, port), store.id, HEALTH_SECONDS, entry.ca)

    def instead(port: int) -> AbstractContextManager[None]:
        return serve_as_standby(lambda: is_there(port), lambda: serving(port), ListenError)

    with ExitStack() as stack:
        try:
            server = None if port and is_there(port) else stack.enter_context(serving(port))
        except ListenError:
            # Either another coordinator was quicker, or the port that was once assigned by chance belongs to another
            # process now. Machines that know the port still call it, so it is given up only when there are none.
            server = None
            if not (port and is_there(port)):
                if entry.port or not port or store.attempts.find(alive=True):
                    raise
                server = stack.enter_context(serving(0))
        if server is not None:
            port = claim_shared_port(store, server.port, wall_clock, is_there)
        if server is None or port != server.port:
            stack.close()
            stack.enter_context(instead(port))
        yield CoordinatorEndpoint(entry.url or local_url(entry, port), sha256, authority)


def interruption_queues(opened: AppSettings, clock: Callable[[], datetime]) -> dict[str, Callable[[], NoticeQueue]]:
    """Return functions that open each queue of the deploy file, by cloud and region. Opening raises SdkMissingError."""
    named = {
        f"{cloud} {region}".rstrip(): (cloud, url)
        for cloud, entry in opened.deploy.clouds.items()
        for region, url in entry.queues.items()
    }
    return {name: partial(_queue, cloud, url, opened.clouds, clock) for name, (cloud, url) in named.items()}


def _queue(cloud: str, url: str, clouds: LoadedClouds, clock: Callable[[], datetime]) -> NoticeQueue:
    settings = clouds.settings(cloud)
    settings = replace(settings, options={**settings.options, QUEUE_OPTION: url})
    queue = open_notices(cloud, Session(settings, embedded_book(), clock(), Caller(cloud, _LISTEN_SECONDS)))
    assert queue is not None
    return queue


def home_without_coordinator(opened: AppSettings, store: StateStore) -> CoordinatorEndpoint:
    """Return where machines would call, for commands that create none."""
    return CoordinatorEndpoint(opened.deploy.coordinator.url or f"http://127.0.0.1:{store.values.get(PORT) or 0}", "")


def _text(name: str) -> str:
    try:
        return Path(name).expanduser().read_text(encoding="utf-8")
    except OSError as error:
        raise InvalidInputError.single(f"cannot be read: {error.strerror}", where=name) from None


_LARGEST_HEALTH = 4096


def is_serving(url: str, state_id: str, timeout: float, ca_file: str | None = None) -> bool:
    """Return whether a coordinator of that state answers at the URL within ``timeout`` seconds. Raises nothing."""
    handlers: list[urllib.request.BaseHandler] = []
    try:
        if urlsplit(url).scheme == "https":
            context = ssl.create_default_context(cafile=ca_file)
            handlers.append(urllib.request.HTTPSHandler(context=context))
        if urlsplit(url).hostname in LOOPBACK:
            handlers.append(urllib.request.ProxyHandler({}))
        opener = urllib.request.build_opener(*handlers)
        with opener.open(f"{url.rstrip('/')}/v1/health", timeout=timeout) as answer:
            content = json.loads(answer.read(_LARGEST_HEALTH))
    except (OSError, http.client.HTTPException, ValueError, RecursionError):
        return False
    return isinstance(content, dict) and content.get("state") == state_id
