"""The training of the smoke run: it keeps its count in every kind of store, and goes on from there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from urllib.parse import parse_qs, unquote
from wsgiref.types import StartResponse, WSGIEnvironment

import pytest

from router.agent.helper import stepfare_checkpoint
from tests.smoke.accounts import TRAIN
from tests.smoke.notices import Account, NotPlayedError, Target, give_notice, take
from tests.support.service import in_thread

HELPER = Path(stepfare_checkpoint.__file__).parent
# `aws s3 cp --only-show-errors FROM TO`, with folders for buckets.
AWS = """#!{python}
import pathlib, shutil, sys
assert sys.argv[1:4] == ["s3", "cp", "--only-show-errors"], sys.argv
there = lambda url: pathlib.Path("{buckets}", url.removeprefix("s3://"))
if sys.argv[4] == "-":
    there(sys.argv[5]).parent.mkdir(parents=True, exist_ok=True)
    there(sys.argv[5]).write_bytes(sys.stdin.buffer.read())
else:
    sys.stdout.buffer.write(there(sys.argv[4]).read_bytes())
"""
# The training with every host replaced by that of a local service, which is told the host.
ELSEWHERE = """
import runpy, sys, urllib.request
from urllib.parse import urlsplit
opened = urllib.request.urlopen
def urlopen(request, timeout):
    parts = urlsplit(request.full_url)
    local = urllib.request.Request("{url}" + parts.path + "?" + parts.query, request.data, dict(request.header_items()),
                                   method=request.get_method())
    local.add_header("X-Host", parts.netloc)
    return opened(local, timeout=timeout)
urllib.request.urlopen = urlopen
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


class Blobs:
    """Objects of Cloud Storage and of Blob Storage, and the tokens of both clouds' machines."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        status, body = self._answer(environ, environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0)))
        start_response(status, [("Content-Length", str(len(body)))])
        return [body]

    def _answer(self, environ: WSGIEnvironment, sent: bytes) -> tuple[str, bytes]:
        host, path = environ["HTTP_X_HOST"], environ["PATH_INFO"]
        query = {name: values[0] for name, values in parse_qs(environ["QUERY_STRING"]).items()}
        if host == "metadata.google.internal" and environ.get("HTTP_METADATA_FLAVOR") == "Google":
            return "200 OK", b'{"access_token": "g"}'
        if host == "169.254.169.254" and environ.get("HTTP_METADATA") == "true":
            assert query["resource"] == "https://storage.azure.com/"
            return "200 OK", b'{"access_token": "a"}'
        signed = environ.get("HTTP_AUTHORIZATION")
        if host == "storage.googleapis.com" and signed == "Bearer g":
            if environ["REQUEST_METHOD"] == "POST" and path == "/upload/storage/v1/b/bucket/o":
                self.objects[query["name"]] = sent
                return "200 OK", b"{}"
            return "200 OK", self.objects[unquote(path.removeprefix("/storage/v1/b/bucket/o/"))]
        if host == "acc.blob.core.windows.net" and signed == "Bearer a" and environ.get("HTTP_X_MS_VERSION"):
            name = path.removeprefix("/box/")
            if environ["REQUEST_METHOD"] == "PUT" and environ.get("HTTP_X_MS_BLOB_TYPE") == "BlockBlob":
                self.objects[name] = sent
                return "201 Created", b""
            return "200 OK", self.objects[name]
        return "403 Forbidden", b""


def train(folder: Path, store: str, words: Iterable[str], more: Mapping[str, str], resume: str = "") -> str:
    """Return its output; the folder is that of one machine."""
    (folder / "control").mkdir(parents=True)
    own = {"STEPFARE_CHECKPOINT_STORE": store, "STEPFARE_CONTROL": str(folder / "control"), "STEPFARE_ATTEMPT": "a-1"}
    resumed = {"STEPFARE_RESUME_MANIFEST": resume} if resume else {}
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(HELPER), **own, **resumed, **more}
    done = subprocess.run(
        [sys.executable, *words], cwd=folder, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def saved(folder: Path) -> dict[str, object]:
    told: dict[str, object] = json.loads((folder / "control" / "saved.json").read_text())
    return told


STORES = {"gs": "gs://bucket/smoke", "abfs": "abfss://box@acc.dfs.core.windows.net/smoke", "s3": "s3://bucket/smoke"}


@pytest.mark.parametrize("kind", [*STORES, "file"])
def test_it_goes_on_from_what_the_store_has(kind: str, tmp_path: Path) -> None:
    store = STORES.get(kind, (tmp_path / "buckets" / "bucket" / "smoke").as_uri())
    tools, blobs = tmp_path / "tools", Blobs()
    tools.mkdir()
    (tools / "aws").write_text(AWS.format(python=sys.executable, buckets=tmp_path / "buckets"))
    (tools / "aws").chmod(0o755)
    more = {"PATH": f"{tools}:{os.environ['PATH']}"}
    with in_thread(blobs) as url:
        script = tmp_path / "elsewhere.py"
        script.write_text(ELSEWHERE.format(url=url))
        words = [str(script), str(TRAIN)] if kind in ("gs", "abfs") else [str(TRAIN)]
        first = train(tmp_path / "m1", store, [*words, "5", "0", "2"], more)
        told = saved(tmp_path / "m1")
        assert (told["step"], told["manifest"]) == (5, f"{store}/step-00000005.manifest.json")
        assert first == "counted 15\n"
        # A machine with a disk of its own, told where to go on.
        second = train(tmp_path / "m2", store, [*words, "9", "0", "2"], more, resume=str(told["manifest"]))
    assert second == "resumed from step 5\ncounted 45\n"
    assert saved(tmp_path / "m2")["step"] == 9
    # What lies in the store is a checkpoint for whoever reads it.
    there = tmp_path / "buckets" / "bucket" / "smoke"
    for name, content in blobs.objects.items():
        (place := there / name.removeprefix("smoke/")).parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
    good = stepfare_checkpoint.Checkpoints(there, rank=-1).newest()
    assert good is not None
    assert json.loads((good.of(0) / "state.json").read_text()) == {"step": 9, "counted": 45}


@pytest.mark.parametrize("cloud", ["aws", "gcp", "azure"])
def test_what_cannot_be_announced_says_why(cloud: str) -> None:
    spot, bought = (Target("a-1", "m", "r", market) for market in ("spot", "on_demand"))
    with pytest.raises(NotPlayedError, match="spot machines alone"):
        give_notice(Account(cloud), bought)
    if cloud == "aws":
        with pytest.raises(NotPlayedError, match="--fis-role"):
            give_notice(Account(cloud), spot)
    else:
        with pytest.raises(NotPlayedError, match="without a notice"):
            take(Account(cloud), spot)
