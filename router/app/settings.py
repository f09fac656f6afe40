"""Read the files that say where state is and how machines are made: every command with a state begins here."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from pricing.atomic_file import make_private_folder, write_atomic
from router.config.settings_files import deploy_path, load_clouds, load_deploy
from router.controller.workspace.run_folders import run_directories, state_id_of
from router.deploy.deploy_settings import CoordinatorEntry, Deploy
from router.prices.cloud_settings import LoadedClouds
from router.prices.data_folders import clouds_file, data_folder
from router.state.database_url import parse_database_url
from router.state.errors import NoStateError, StateError
from router.state.store import StateStore

# The variable that names the folder of the sandbox's cloud.
SANDBOX = "STEPFARE_SANDBOX"


@dataclass(frozen=True, slots=True)
class AppSettings:
    """The settings as read from the files, before anything is opened."""

    deploy: Deploy
    clouds: LoadedClouds
    folder: Path
    environment: Mapping[str, str]

    @property
    def state_url(self) -> str:
        """Return the URL of the state database."""
        return self.deploy.state or f"sqlite:///{self.folder / 'state.db'}"

    @property
    def has_state(self) -> bool:
        """Return whether the state database is known to exist; one on a server is taken to exist."""
        return self.deploy.state is not None or (self.folder / "state.db").exists()

    @property
    def logs(self) -> Path:
        """Return the folder for the output of every rank."""
        return self.folder / "logs"

    @property
    def runs(self) -> Path:
        """Return the folder with a run directory for each attempt."""
        return self.folder / "runs"

    @property
    def sandbox(self) -> Path:
        """Return the folder of the sandbox's cloud (terraform/modules/sandbox/start.sh); it need not exist."""
        return Path(self.environment.get(SANDBOX) or self.folder / "sandbox").absolute()


def read_settings(
    environment: Mapping[str, str], deploy: Path | None = None, clouds: Path | None = None
) -> AppSettings:
    """Read deploy and clouds file; None is the default place. InvalidInputError for what is wrong in them."""
    folder = data_folder()
    path, is_named = deploy_path(deploy, folder)
    settings = load_deploy(path, named=is_named)
    return AppSettings(settings, load_clouds(clouds or clouds_file(), named=clouds is not None), folder, environment)


_DIGEST_CHARACTERS = 12


@dataclass(frozen=True, slots=True)
class StateIdentity:
    """The file beside the run directories that names their states: ids, a line each, the newest last."""

    file: Path
    runs: Path

    @property
    def ids(self) -> tuple[str, ...]:
        """Return the states that are known to have been here; without the file, those that made run directories."""
        try:
            written = tuple(self.file.read_text(encoding="utf-8").split())
        except (OSError, ValueError):
            written = ()
        return written or tuple(sorted({state for path in run_directories(self.runs) if (state := state_id_of(path))}))

    def write(self, state_id: str) -> None:
        """Add an id, unless it is the last. Raises StateError."""
        try:
            lines = self.file.read_text(encoding="utf-8").split() if self.file.exists() else []
            if lines[-1:] == [state_id]:
                return
            make_private_folder(self.file.parent)
            write_atomic(self.file, "".join(f"{line}\n" for line in (*lines, state_id)))
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or "is no text"
            raise StateError(
                f"{self.file}: {reason}", "give the user that runs stepfare a folder to write to"
            ) from None


def identity_of(opened: AppSettings) -> StateIdentity:
    """Return the identity file of the state that the deploy file names."""
    if opened.deploy.state is None:
        return StateIdentity(opened.folder / "state.id", opened.runs)
    # Another database has another identity file, so that one home can serve several.
    digest = hashlib.sha256(str(parse_database_url(opened.deploy.state)).encode()).hexdigest()[:_DIGEST_CHARACTERS]
    return StateIdentity(opened.folder / f"state-{digest}.id", opened.runs)


def open_state(opened: AppSettings, now: datetime, *, new_state: bool = False, marks: bool = True) -> StateStore:
    """Open the state database, made where there is none; unless it ``marks`` nothing is written beside it.

    StateError where run directories of another state lie beside it, or of one that is missing, unless ``new_state``
    says that a new one is wanted all the same.
    """
    mark = identity_of(opened)
    full = bool(run_directories(opened.runs))
    try:
        store = StateStore.open(opened.state_url, now=now, makes=new_state or not full)
    except NoStateError as error:
        raise lost_state_error(mark, str(error)) from None
    try:
        written = mark.ids if mark.file.exists() else ()
        if full and written and written[-1] != store.id and not new_state:
            raise lost_state_error(mark, f"{parse_database_url(opened.state_url)} is state {store.id}")
        if marks and (not written or written[-1] != store.id):
            mark.write(store.id)
    except BaseException:
        store.close()
        raise
    return store


def check_not_lost(opened: AppSettings) -> None:
    """Raise StateError where the state database is missing beside run directories."""
    if not opened.has_state and run_directories(opened.runs):
        raise lost_state_error(identity_of(opened), f"{parse_database_url(opened.state_url)} is missing")


def lost_state_error(mark: StateIdentity, what: str) -> StateError:
    """Return the error that run directories beside a state are not its own, and what to do."""
    count, ids = len(run_directories(mark.runs)), mark.ids
    whose = f"of state {ids[-1]}" if ids else "of another state"
    sweep = f"`stepfare sweep --state {ids[-1] if ids else 'ID'} --yes`"
    directories = f"{count} run director{'y' if count == 1 else 'ies'}"
    lie = f"lie{'s' if count == 1 else ''} in {mark.runs}"
    return StateError(
        f"{what}, and {directories} {whose} {lie}: machines may run that nothing here knows",
        f"restore it (`stepfare state restore FILE`); or release what it made ({sweep}), then begin anew with "
        "`stepfare apply --new-state`",
    )


# The state's key of the port on which the coordinator listens.
PORT = "coordinator_port"
HEALTH_SECONDS = 2.0


def local_url(entry: CoordinatorEntry, port: int) -> str:
    """Return where this machine reaches a coordinator of these settings on ``port``."""
    scheme = "https" if entry.certificate else "http"
    host = "127.0.0.1" if entry.host in ("0.0.0.0", "::") else entry.host
    return f"{scheme}://{host}:{port}"
