"""Read the files that say where state is and how machines are made: every command with a state begins here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from router.config.clouds_file import load_clouds
from router.config.deploy_file import deploy_path, load_deploy
from router.controller.deploy_settings import Deploy
from router.prices.cloud_settings import LoadedClouds
from router.prices.data_folders import clouds_file, data_folder

# The variable that names the folder of the sandbox's cloud.
SANDBOX = "STEPFARE_SANDBOX"


@dataclass(frozen=True, slots=True)
class SettingsFiles:
    """The files to read; None is the default place."""

    deploy: Path | None = None
    clouds: Path | None = None


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


def read_settings(files: SettingsFiles, environment: Mapping[str, str]) -> AppSettings:
    """Read deploy and clouds file. InvalidInputError for what is wrong in them."""
    folder = data_folder()
    path, is_named = deploy_path(files.deploy, folder)
    deploy = load_deploy(path, named=is_named)
    clouds = load_clouds(files.clouds or clouds_file(), named=files.clouds is not None)
    return AppSettings(deploy, clouds, folder, environment)
