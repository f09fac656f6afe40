"""A training without a framework, for a machine that has Python and nothing else: it counts, and keeps the count.

Its text is the command of the smoke run's job, so it stays short: user data has 16 KiB for all. The agent gives it the
helper ``stepfare_checkpoint``. The store is a folder (file://) or a bucket, which the machine's identity may write.
"""

import json
import os
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from urllib.parse import quote, urlsplit

STORE, RESUME = os.environ["STEPFARE_CHECKPOINT_STORE"], os.environ.get("STEPFARE_RESUME_MANIFEST", "")
STEPS, SECONDS, EVERY = int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])
# The helper then leaves it to us to say that a checkpoint is stored.
os.environ["STEPFARE_CHECKPOINT_URL"] = STORE
import stepfare_checkpoint  # type: ignore[import-not-found] # noqa: E402

Headers = dict[str, str]


def call(method: str, url: str, headers: Headers, body: bytes | None = None) -> bytes:
    request = urllib.request.Request(url, body, headers, method=method)
    with urllib.request.urlopen(request, timeout=30) as answer:
        return bytes(answer.read())


def token(url: str, headers: Headers) -> Headers:
    """Return the header with the machine's own token."""
    return {"Authorization": "Bearer " + json.loads(call("GET", url, headers))["access_token"]}


def google() -> Headers:
    """Return the headers of a call to Cloud Storage."""
    url = "http://metadata.google.internal/computeMetadata/v1/instance/service-accounts/default/token"
    return token(url, {"Metadata-Flavor": "Google"})


def azure() -> Headers:
    """Return the headers of a call to Blob Storage."""
    url = "http://169.254.169.254/metadata/identity/oauth2/token?api-version=2018-02-01&resource="
    more = {"x-ms-version": "2021-08-06", "x-ms-blob-type": "BlockBlob"}
    return {**token(url + quote("https://storage.azure.com/", ""), {"Metadata": "true"}), **more}


def place(url: str) -> tuple[str, str, str, str]:
    """Return scheme, host or bucket, Azure's container, and path."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2].replace(".dfs.", ".blob.")
    return parts.scheme, host, parts.username or "", parts.path.lstrip("/")


def put(url: str, body: bytes) -> None:
    scheme, host, container, path = place(url)
    if scheme == "file":
        Path("/" + path).parent.mkdir(parents=True, exist_ok=True)
        Path("/" + path).write_bytes(body)
    elif scheme == "s3":
        subprocess.run(["aws", "s3", "cp", "--only-show-errors", "-", f"s3://{host}/{path}"], input=body, check=True)
    elif scheme == "gs":
        base = f"https://storage.googleapis.com/upload/storage/v1/b/{host}/o?uploadType=media&name="
        call("POST", base + quote(path, ""), google(), body)
    else:
        call("PUT", f"https://{host}/{container}/{quote(path)}", azure(), body)


def get(url: str) -> bytes:
    scheme, host, container, path = place(url)
    if scheme == "file":
        return Path("/" + path).read_bytes()
    if scheme == "s3":
        words = ["aws", "s3", "cp", "--only-show-errors", f"s3://{host}/{path}", "-"]
        return subprocess.run(words, check=True, stdout=subprocess.PIPE).stdout
    if scheme == "gs":
        base = f"https://storage.googleapis.com/storage/v1/b/{host}/o/"
        return call("GET", base + quote(path, "") + "?alt=media", google())
    return call("GET", f"https://{host}/{container}/{quote(path)}", azure())


def store(folder: Path) -> None:
    """Copy the newest checkpoint, the manifest last, and tell the agent where it is."""
    manifest = sorted(folder.glob("step-*.manifest.json"))[-1]
    for file in json.loads(manifest.read_text())["files"]:
        put(f"{STORE}/{file['path']}", (folder / file["path"]).read_bytes())
    put(f"{STORE}/{manifest.name}", manifest.read_bytes())
    control = Path(os.environ["STEPFARE_CONTROL"])
    said = json.loads((control / "written.json").read_text())
    part = control / ".saved.part"
    part.write_text(json.dumps({**said, "manifest": f"{STORE}/{manifest.name}"}))
    part.rename(control / "saved.json")


def main() -> None:
    first, counted = 1, 0
    if RESUME:
        named = json.loads(get(RESUME))
        state = json.loads(get(RESUME.rpartition("/")[0] + "/" + named["files"][0]["path"]))
        first, counted = state["step"] + 1, state["counted"]
        print(f"resumed from step {state['step']}", flush=True)
    checkpoints = stepfare_checkpoint.Checkpoints("checkpoints", keep=2)
    for step in range(first, STEPS + 1):
        time.sleep(SECONDS)
        counted += step
        request = checkpoints.wanted(step)
        if request or step % EVERY == 0 or step == STEPS:
            text = json.dumps({"step": step, "counted": counted})
            checkpoints.save(step, lambda folder, text=text: (folder / "state.json").write_text(text))
            store(Path("checkpoints"))
        checkpoints.progress(step, STEPS)
        if request and request.ends:
            return
    print(f"counted {counted}", flush=True)


main()
