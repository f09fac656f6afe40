"""Checkpoints in emulators of Google Cloud Storage and Azure Blob that we did not write; of Azure's where
``azurite-blob`` is on the PATH."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from router.checkpoints.arrow_store import ArrowStore, open_arrow_store
from router.checkpoints.checkpoints import find_complete_checkpoints, list_steps, read_manifest, remove_old_checkpoints
from router.checkpoints.object_store import FolderStore, IncompleteCheckpointError
from router.checkpoints.transfer import TransferLimits, transfer_checkpoint, verify_checkpoint
from tests.support.gcs_emulator import gcs_emulator, gcs_url
from tests.support.narrowed import present
from tests.support.service import closed_port
from tests.support.stored_checkpoints import newest, save

# Azurite's own, in its documentation.
ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="


@contextmanager
def _running(words: Sequence[str], port: int, folder: Path) -> Iterator[None]:
    program = shutil.which(words[0])
    if program is None:
        pytest.skip(f"{words[0]} is not installed")
    with (folder / "emulator").open("wb") as out:
        process = subprocess.Popen([program, *words[1:]], stdout=out, stderr=out, cwd=folder)
    try:
        for _ in range(200):
            with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            if process.poll() is not None:
                pytest.fail((folder / "emulator").read_text())
            time.sleep(0.05)
        yield
    finally:
        process.kill()
        process.wait()


@pytest.fixture(params=["gcs", "azure"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ArrowStore]:
    if request.param == "gcs":
        with gcs_emulator() as port:
            yield open_arrow_store(gcs_url(port, "run"), {})
        return
    port = closed_port()
    words = [
        "azurite-blob",
        "--silent",
        "--blobPort",
        str(port),
        "--inMemoryPersistence",
        "--skipApiVersionCheck",
        "--disableTelemetry",
    ]
    with _running(words, port, tmp_path):
        from pyarrow.fs import AzureFileSystem

        at = f"127.0.0.1:{port}"
        system = AzureFileSystem(
            ACCOUNT,
            account_key=KEY,
            blob_storage_authority=at,
            blob_storage_scheme="http",
            dfs_storage_authority=at,
            dfs_storage_scheme="http",
        )
        system.create_dir("container-1")
        yield ArrowStore(system, "container-1/run", f"abfs://container-1@{ACCOUNT}/run", None)


def test_there_and_back(store: ArrowStore, tmp_path: Path) -> None:
    source = FolderStore(tmp_path / "run")
    for step, files in ((1, None), (2, {"large": 30_000_000, "deep/small": 5, "empty": 0}), (3, None)):
        save(tmp_path / "run", step, files)
        manifest = present(read_manifest(source, step))
        moved = transfer_checkpoint(source, manifest, store, TransferLimits())
        assert (moved.bytes, moved.manifest) == (manifest.bytes, f"{store.url}/{manifest.name}")
        assert transfer_checkpoint(source, manifest, store, TransferLimits()).kept == manifest.bytes
        verify_checkpoint(store, manifest, TransferLimits())
    assert [manifest.step for manifest in find_complete_checkpoints(store)] == [3, 2, 1]
    assert store.folders() == [f"step-{step:08d}" for step in (1, 2, 3)]
    assert remove_old_checkpoints(store, 1, 2) == [1]
    assert (list_steps(store), store.folders()) == ([3, 2], ["step-00000002", "step-00000003"])
    second = present(read_manifest(store, 2))
    assert transfer_checkpoint(store, second, FolderStore(tmp_path / "back"), TransferLimits()).bytes == second.bytes
    assert newest(tmp_path / "back") == 2
    store.put(second.files[0].path, b"x" * second.files[0].bytes)
    with pytest.raises(IncompleteCheckpointError):
        verify_checkpoint(store, second, TransferLimits())
    assert remove_old_checkpoints(store, 1, 3) == [2]
    assert (list_steps(store), store.folders(), read_manifest(store, 77)) == ([3], ["step-00000003"], None)
    assert store.sizes(["no/such", "none"]) == [None, None]
    store.remove("none")
    store.remove_below("none", frozenset())
