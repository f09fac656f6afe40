"""Reads the files that say where state is and how machines are made: what every command with a state begins with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from router.config.clouds_file import LoadedClouds, load_clouds
from router.config.deploy_file import Deploy, deploy_path, load_deploy
from router.prices.home import clouds_file, home

# Where what plays the cloud for the sandbox's machines lies.
SANDBOX = "STEPFARE_SANDBOX"


@dataclass(frozen=True, slots=True)
class Files:
    """Which files to read; None is where they are by default."""

    deploy: Path | None = None
    clouds: Path | None = None


@dataclass(frozen=True, slots=True)
class Opened:
    """What was read, before anything is opened."""

    deploy: Deploy
    clouds: LoadedClouds
    folder: Path
    environment: Mapping[str, str]

    @property
    def state_url(self) -> str:
        """Where the state database is."""
        return self.deploy.state or f"sqlite:///{self.folder / 'state.db'}"

    @property
    def has_state(self) -> bool:
        """Whether the state database is known to be there; one on a server is taken to be."""
        return self.deploy.state is not None or (self.folder / "state.db").exists()

    @property
    def logs(self) -> Path:
        """Output of every rank."""
        return self.folder / "logs"

    @property
    def runs(self) -> Path:
        """A run directory for each attempt."""
        return self.folder / "runs"

    @property
    def sandbox(self) -> Path:
        """What plays the cloud for machines of the sandbox (terraform/modules/sandbox/start.sh); it need not exist."""
        return Path(self.environment.get(SANDBOX) or self.folder / "sandbox").absolute()


def read_files(files: Files, environment: Mapping[str, str]) -> Opened:
    """Deploy and clouds file. InvalidInputError for what is wrong in them."""
    folder = home()
    path, named = deploy_path(files.deploy, folder)
    deploy = load_deploy(path, named=named)
    clouds = load_clouds(files.clouds or clouds_file(), named=files.clouds is not None)
    return Opened(deploy, clouds, folder, environment)
