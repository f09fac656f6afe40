"""SkyPilot tasks become jobs: what is carried, what is listed, and what a user still has to write."""

from __future__ import annotations

import copy
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from pricing.book_file import embedded_book
from pricing.problems import InvalidInputError
from router.cli.import_jobs import import_sky
from router.config.imported_files import sold_machines
from router.config.yamlfile import parse_documents
from router.jobs.imported_job import ImportedJob
from router.jobs.residency import Residency, unknown_tokens
from router.jobs.skypilot import from_skypilot, from_skypilot_file
from router.jobs.spec import Job
from tests.support.repository import ROOT

TASK: dict[str, Any] = {
    "name": "Llama_7B finetune",
    "workdir": "~/code",
    "num_nodes": 2,
    "resources": {
        "infra": "aws/us-east-1/us-east-1a",
        "accelerators": "H100:8",
        "use_spot": True,
        "disk_size": 512,
        "image_id": "docker:registry.example.com/train:3",
        "labels": {"project": "chat"},
        "job_recovery": {"strategy": "EAGER_NEXT_REGION"},
        "autostop": "10m",
    },
    "envs": {"MODEL_SIZE": "13b", "EPOCHS": 3, "DEBUG": True, "WANDB_API_KEY": None},
    "secrets": {"HF_TOKEN": "hf_abcdef"},
    "file_mounts": {
        "/data": "s3://corpus/tokens",
        "/checkpoints": {"source": "s3://runs/llama", "mode": "MOUNT"},
        "/etc/tool.conf": "./tool.conf",
    },
    "setup": "cd /tmp\npip install -r requirements.txt",
    "run": "torchrun --nnodes $SKYPILOT_NUM_NODES --node_rank $SKYPILOT_NODE_RANK train.py $SKYPILOT_TASK_ID",
    "config": {"kubernetes": {"provision_timeout": 600}},
}


def a_task(**resources: Any) -> dict[str, Any]:
    return {"name": "a", "resources": resources, "run": "python a.py"}


def job_of(**resources: Any) -> dict[str, Any]:
    return from_skypilot(a_task(**resources)).job_yaml


def filled(node: Any, values: dict[str, Any], path: str = "") -> Any:
    """The job with what a user writes in place of the marks."""
    if path in values:
        return values[path]
    if isinstance(node, dict):
        return {key: filled(item, values, f"{path}.{key}".lstrip(".")) for key, item in node.items()}
    if isinstance(node, list):
        return [filled(item, values, f"{path}.{index}") for index, item in enumerate(node)]
    return node


FIELD = ROOT.parent / "shared" / "field"
needs_field = pytest.mark.skipif(not FIELD.exists(), reason="no ../shared")


def imported_case(folder: str, tmp_path: Path) -> tuple[dict[str, Any], str]:
    """The job that the command writes for a case of the field, and the file's text."""
    out = tmp_path / "job.yaml"
    import_sky(FIELD / folder / "task.yaml", out)
    return yaml.safe_load(out.read_text(encoding="utf-8")), out.read_text(encoding="utf-8")


@needs_field
def test_values_of_the_environment_are_what_skypilots_process_sees(tmp_path: Path) -> None:
    job, text = imported_case("09-number-in-env", tmp_path)
    assert job["run"]["env"] == {"ACTOR_LR": "1e-6", "PORT": "8000", "DEBUG": "True", "MODE": "on", "VERSION": "1.1"}
    document = parse_documents(text, "job.yaml")[0].plain()  # our own reader takes a bare 1e-6 for a number
    assert document["run"]["env"] == job["run"]["env"]


@needs_field
def test_what_the_job_file_has_words_for_is_carried(tmp_path: Path) -> None:
    job, _ = imported_case("10-secrets-git-network-not-carried", tmp_path)
    assert job["run"]["code"] == {"git": "https://git.example.com/team/train.git", "ref": "v1.2"}
    assert job["run"]["env"]["HF_TOKEN"] == "secret:env:STEPFARE_JOB_HF_TOKEN"
    assert job["run"]["env"]["WANDB_API_KEY"] == "secret:env:STEPFARE_JOB_WANDB_API_KEY"
    assert job["gang"]["rdma"] == "required"
    (point,) = job["workload"]["profile"]
    assert (point["placement"], point["fabric"]) == ("2x8", "rdma")


@needs_field
def test_the_shape_of_the_gang_is_carried(tmp_path: Path) -> None:
    job, _ = imported_case("02-small-nodes-unplaceable", tmp_path)
    (point,) = job["workload"]["profile"]
    assert (point["accelerators"], point["placement"], point["fabric"]) == ("V100-16GB:2", "2x1", "ethernet")
    assert job["gang"]["machines"] == 2


def test_a_whole_task() -> None:
    found = from_skypilot(TASK)
    job = found.job_yaml
    assert job["name"] == "llama-7b-finetune"
    assert job["gang"] == {"accelerators": ["H100:16"], "machines": 2}
    assert job["market"] == {"spot": "only"}
    assert job["residency"] == {"allow": ["aws/us-east-1"]}
    assert job["labels"] == {"project": "chat"}
    assert job["run"]["image"] == "registry.example.com/train:3"
    assert job["run"]["env"] == {
        "MODEL_SIZE": "13b",
        "EPOCHS": "3",
        "DEBUG": "True",
        "WANDB_API_KEY": "secret:env:STEPFARE_JOB_WANDB_API_KEY",
        "HF_TOKEN": "secret:env:STEPFARE_JOB_HF_TOKEN",
    }
    assert job["run"]["engine"] == "command"
    assert job["data"]["uri"] == "s3://corpus/tokens"
    assert found.to_fill == (
        "team",
        "steps",
        "workload.profile.0.seconds_per_step",
        "data.at",
        "data.gib",
        "checkpoint.size_gib",
    )
    lost = "\n".join(found.not_carried)
    for word in ("zone us-east-1a", "disk_size", "job_recovery", "autostop"):
        assert word in lost
    for word in ("/etc/tool.conf", "SKYPILOT_TASK_ID", "config"):
        assert word in lost
    assert "SKYPILOT_NODE_RANK" not in lost  # the agent gives it
    assert len(set(found.not_carried)) == len(found.not_carried)


def test_the_task_is_not_changed_and_the_answer_is_the_same_twice() -> None:
    before = copy.deepcopy(TASK)
    assert from_skypilot(TASK) == from_skypilot(TASK)
    assert before == TASK


def test_secrets_are_never_carried() -> None:
    assert "hf_abcdef" not in str(from_skypilot(TASK))


def test_setup_runs_first_and_in_a_shell_of_its_own() -> None:
    command = from_skypilot(TASK).job_yaml["run"]["command"]
    assert command.startswith("(\ncd /tmp\npip install")
    assert ") || exit 1\ntorchrun" in command


def test_until_it_is_filled_in_no_job_is_read_from_it() -> None:
    """Each mark alone is enough to have it refused."""
    found = from_skypilot(TASK)
    values: dict[str, Any] = {
        "team": "red",
        "steps": 1000,
        "workload.profile.0.seconds_per_step": 2.5,
        "data.at": "aws/us-east-1",
        "data.gib": "500 GB",
        "checkpoint.size_gib": 90,
    }
    job = Job.model_validate(filled(found.job_yaml, values))
    assert job.gang.options[0].count == 16
    assert job.market.spot == "only"
    for field in found.to_fill:
        some = {path: value for path, value in values.items() if path != field}
        with pytest.raises(ValidationError):
            Job.model_validate(filled(found.job_yaml, some))


@pytest.mark.parametrize(
    ("written", "gangs"),
    [
        ("H100:8", ["H100:8"]),
        ("H100", ["H100:1"]),
        ("h100:4", ["H100:4"]),
        ("A100:8", ["A100-40GB:8"]),
        ("A100-80GB:8", ["A100-80GB:8"]),
        ("V100:4", ["V100-16GB:4"]),
        (["L4:1", "A10G:1"], ["L4:1", "A10G:1"]),
        ({"H100": 8, "A100-80GB": 8}, ["H100:8", "A100-80GB:8"]),
        ({"H100:8": None, "H200:8": None}, ["H100:8", "H200:8"]),
        ("{H100:8, H200:8}", ["H100:8", "H200:8"]),
        ("tpu-v6e-8", ["TPU-v6e:8"]),
        ("tpu-v6e-8:1", ["TPU-v6e:8"]),
    ],
)
def test_the_ways_to_write_accelerators(written: object, gangs: list[str]) -> None:
    assert job_of(accelerators=written)["gang"]["accelerators"] == gangs


@pytest.mark.parametrize("written", ["H100:0.5", "80GB+", "nvidia/h100"])
def test_accelerators_that_cannot_be_carried_are_listed_and_marked(written: str) -> None:
    found = from_skypilot(a_task(accelerators=written))
    assert any(written in line for line in found.not_carried)
    assert {"gang.accelerators", "workload"} <= set(found.to_fill)


def test_alternatives_take_the_fields_around_them() -> None:
    found = from_skypilot(
        a_task(
            use_spot=True,
            any_of=[
                {"infra": "aws/us-west-2", "accelerators": "H100:8"},
                {"cloud": "GCP", "region": "us-central1", "accelerators": "A100-80GB:8", "use_spot": False},
            ],
        )
    )
    assert found.job_yaml["gang"]["accelerators"] == ["H100:8", "A100-80GB:8"]
    assert found.job_yaml["residency"]["allow"] == ["aws/us-west-2", "gcp/us-central1"]
    assert found.job_yaml["market"]["spot"] == "allowed"
    assert any("which accelerator goes with which place" in line for line in found.not_carried)


def test_the_order_of_ordered_is_lost_and_said() -> None:
    found = from_skypilot(a_task(accelerators="H100", ordered=[{"infra": "aws"}, {"infra": "gcp"}]))
    assert found.job_yaml["residency"]["allow"] == ["aws", "gcp"]
    assert any("ordered" in line for line in found.not_carried)


def test_one_alternative_without_place_opens_every_place() -> None:
    found = from_skypilot(a_task(accelerators="H100", any_of=[{"infra": "aws"}, {"accelerators": "H200"}]))
    assert "residency" not in found.job_yaml
    assert any("anywhere" in line for line in found.not_carried)


@pytest.mark.parametrize(
    ("place", "tokens"),
    [
        ({"infra": "aws"}, ["aws"]),
        ({"infra": "aws/*/us-east-1a"}, ["aws"]),
        ({"infra": "*/us-east-1"}, ["us-east-1"]),
        ({"cloud": "azure", "region": "eastus"}, ["azure/eastus"]),
        ({"region": "us-east-1"}, ["us-east-1"]),
    ],
)
def test_places_become_residency(place: dict[str, str], tokens: list[str]) -> None:
    assert job_of(accelerators="H100", **place)["residency"]["allow"] == tokens


BOOK = embedded_book()
SOLD = sold_machines(BOOK)


def imported(**resources: Any) -> ImportedJob:
    return from_skypilot(a_task(accelerators="H100", **resources), SOLD)


@pytest.mark.parametrize(
    "resources",
    [{"infra": "oci"}, {"cloud": "IBM"}, {"infra": "aws/mars-1"}, {"any_of": [{"infra": "oci"}, {"infra": "scp/kr"}]}],
)
def test_a_place_that_is_not_planned_is_to_be_filled_in_not_refused_later(resources: dict[str, Any]) -> None:
    found = imported(**resources)
    assert "residency.allow" in found.to_fill
    assert "planned are aws, azure, gcp" in str(found.job_yaml["residency"])


@pytest.mark.parametrize("cloud", ["aws", "GCP", "azure", "lambda", "nebius", "runpod", "datacrunch", "verda"])
def test_a_cloud_that_is_written_is_one_that_validate_knows(cloud: str) -> None:
    (token,) = imported(cloud=cloud).job_yaml["residency"]["allow"]
    assert unknown_tokens(Residency.model_validate({"allow": [token]}), BOOK.regions) == []


def test_an_alternative_that_is_not_planned_is_left_out_and_told() -> None:
    found = imported(any_of=[{"infra": "oci", "accelerators": "A100"}, {"infra": "aws"}])
    assert found.job_yaml["residency"] == {"allow": ["aws"]}
    assert found.job_yaml["gang"]["accelerators"] == ["H100:1"]
    assert any(line.startswith("oci: ") for line in found.not_carried)


def test_an_image_of_the_alternatives_is_carried_or_told() -> None:
    one = imported(any_of=[{"infra": "aws", "image_id": "docker:i:1"}, {"infra": "gcp", "image_id": "docker:i:1"}])
    assert one.job_yaml["run"]["image"] == "i:1"
    for images in (["docker:i:1", "docker:i:2"], ["docker:i:1", None], ["ami-1", "docker:i:1"]):
        some = imported(any_of=[{"infra": "aws", "image_id": images[0]}, {"infra": "gcp", "image_id": images[1]}])
        assert "image" not in some.job_yaml["run"]
        assert any(line.startswith("image_id") and str(images[0]) in line for line in some.not_carried)


def test_labels_and_priority_of_the_alternatives_are_carried_or_told() -> None:
    same = {"priority": 5, "labels": {"project": "chat"}}
    one = imported(any_of=[{"infra": "aws", **same}, {"infra": "gcp", **same}])
    assert (one.job_yaml["priority"], one.job_yaml["labels"]) == (5, {"project": "chat"})
    some = imported(any_of=[{"infra": "aws", **same}, {"infra": "gcp"}])
    assert not {"priority", "labels"} & set(some.job_yaml)
    assert {line.split(":")[0] for line in some.not_carried} >= {"priority", "labels project"}


@pytest.mark.parametrize("infra", ["k8s", "k8s/my-context", "ssh/pool"])
def test_machines_that_nobody_sells_are_listed(infra: str) -> None:
    found = from_skypilot(a_task(accelerators="H100", infra=infra))
    assert "residency" not in found.job_yaml
    assert any(infra in line for line in found.not_carried)


@pytest.mark.parametrize(
    ("use_spot", "rule", "said"), [(True, "only", False), (False, "never", False), (None, "never", True)]
)
def test_use_spot_keeps_its_meaning(use_spot: bool | None, rule: str, said: bool) -> None:
    found = from_skypilot(a_task(accelerators="H100", use_spot=use_spot))
    assert found.job_yaml["market"]["spot"] == rule
    assert any("use_spot is not said" in line for line in found.not_carried) == said


def test_an_instance_type_is_understood_with_the_machines_at_hand() -> None:
    task = {**a_task(instance_type="p5.48xlarge"), "num_nodes": 2}
    assert from_skypilot(task, SOLD).job_yaml["gang"] == {"accelerators": ["H100:16"], "machines": 2}
    assert "gang.accelerators" in from_skypilot(task).to_fill


def test_an_image_of_one_cloud_and_odd_priorities_are_listed() -> None:
    found = from_skypilot(a_task(accelerators="H100", image_id="ami-0868a20f5a3bf9702", priority=5000))
    assert "image" not in found.job_yaml["run"]
    assert sum("image_id" in line or "priority" in line for line in found.not_carried) == 2
    assert job_of(accelerators="H100", priority=500)["priority"] == 500


def test_inputs_bring_their_size_and_only_one_place_of_data_is_taken() -> None:
    task = {**a_task(accelerators="H100"), "inputs": {"s3://big/corpus": 150}}
    task["file_mounts"] = {"/more": {"source": "gs://other", "mode": "MOUNT"}}
    found = from_skypilot(task)
    assert (found.job_yaml["data"]["uri"], found.job_yaml["data"]["gib"]) == ("s3://big/corpus", "150 GB")
    assert any("gs://other" in line for line in found.not_carried)


def test_mounts_are_read_with_the_values_of_the_environment() -> None:
    task = {**a_task(accelerators="H100"), "envs": {"BUCKET": "corpus", "HF": None}}
    task["file_mounts"] = {"/data/$BUCKET": "gs://${BUCKET}/$OTHER"}
    assert from_skypilot(task).job_yaml["data"]["uri"] == "gs://corpus/$OTHER"


def test_a_repository_needs_a_commit_and_is_cloned_where_an_image_is() -> None:
    task = {**a_task(accelerators="H100"), "workdir": {"url": "https://git.example.com/a.git"}}
    assert "run.code.ref" in from_skypilot(task).to_fill
    task["workdir"]["ref"] = "v1.2"
    task["resources"]["image_id"] = "docker:i:1"
    found = from_skypilot(task)
    assert "code" not in found.job_yaml["run"]
    assert found.job_yaml["run"]["command"].startswith("git clone https://git.example.com/a.git code && cd code && ")
    assert any(line.startswith("workdir: an image brings its code") for line in found.not_carried)


def test_words_of_bash_are_run_by_bash() -> None:
    task = {**a_task(accelerators="H100"), "run": "[[ 1 == 1 ]] && a=(2 3) && echo ${a[1]} $((1 + 1)) ${X:-0}"}
    command = from_skypilot(task).job_yaml["run"]["command"]
    done = subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "3 2 0\n"
    assert from_skypilot(a_task(accelerators="H100")).job_yaml["run"]["command"] == "python a.py"


def test_what_nobody_sells_is_left_out_and_told() -> None:
    found = from_skypilot({**a_task(accelerators=["L4:3", "Gaudi:8", "L4:4"]), "num_nodes": 2}, SOLD)
    assert found.job_yaml["gang"] == {"accelerators": ["L4:8"], "machines": 2}
    lost = "\n".join(found.not_carried)
    assert "L4:3: nobody sells a machine with 3; they have 1, 2, 4, 8" in lost
    assert "Gaudi: no accelerator that is planned" in lost


def test_slices_of_tpus_are_counted_in_chips_and_not_joined() -> None:
    assert from_skypilot(a_task(accelerators="tpu-v4-16")).job_yaml["gang"]["accelerators"] == ["TPU-v4:8"]
    assert from_skypilot(a_task(accelerators="tpu-v5litepod-16")).job_yaml["gang"]["accelerators"] == ["TPU-v5e:16"]
    several = from_skypilot({**a_task(accelerators="tpu-v6e-8"), "num_nodes": 2})
    assert "gang.accelerators" in several.to_fill
    assert any("2 slices" in line for line in several.not_carried)


def test_a_pipeline_and_a_group_say_what_is_lost_between_their_tasks() -> None:
    tasks = [{**a_task(accelerators="H100"), "name": name} for name in ("prepare", "train", "train")]
    first, second, third = from_skypilot_file([{"name": "Pipe"}, *tasks], SOLD)
    assert [job.job_yaml["name"] for job in (first, second, third)] == ["prepare", "train", "pipe-3"]
    assert not any("pipeline" in line for line in first.not_carried)
    assert "the pipeline: this task began when prepare had ended; apply it then" in second.not_carried
    grouped = from_skypilot_file(
        [{"name": "rl", "execution": "parallel", "primary_tasks": ["train"]}, *tasks[:2]], SOLD
    )
    assert [job.job_yaml["group"] for job in grouped] == ["rl", "rl"]
    assert all(any(line.startswith("the group") for line in job.not_carried) for job in grouped)


def test_a_wrong_task_of_several_is_named_at_its_place(tmp_path: Path) -> None:
    file = tmp_path / "pipe.yaml"
    file.write_text("name: p\n---\nrun: a\n---\nrun: b\nnum_nodes: 0\n")
    with pytest.raises(InvalidInputError) as caught:
        import_sky(file, None)
    assert caught.value.problems[0].where == f"{file}:6:12"


def test_a_job_that_would_be_refused_is_not_written(tmp_path: Path) -> None:
    file, out = tmp_path / "task.yaml", tmp_path / "job.yaml"
    file.write_text("workdir: {url: 'https://me:word@git.example.com/a', ref: v1}\nresources: {}\nrun: x\n")
    with pytest.raises(InvalidInputError, match="would make a job that is refused: holds a password"):
        import_sky(file, out)
    assert not out.exists()


def test_text_that_looks_like_a_number_stays_text(tmp_path: Path) -> None:
    file, out = tmp_path / "task.yaml", tmp_path / "job.yaml"
    file.write_text("resources: {accelerators: H100:8, labels: {build: '1e6', on: 'no', hex: '0o17'}}\nrun: x\n")
    import_sky(file, out)
    labels = parse_documents(out.read_text(), "job.yaml")[0].plain()["labels"]
    assert labels == {"build": "1e6", "on": "no", "hex": "0o17"}


def test_a_mounted_bucket_is_streamed_and_a_copied_one_copied() -> None:
    for mode, ours in (("MOUNT", "stream"), ("MOUNT_CACHED", "stream"), ("COPY", "copy")):
        mount = {"/data": {"source": "gs://corpus", "mode": mode}}
        task = {**a_task(accelerators="H100"), "file_mounts": mount}
        assert from_skypilot(task).job_yaml["data"]["mode"] == ours


def test_a_task_without_run_or_name_still_imports() -> None:
    found = from_skypilot({"resources": {"accelerators": "H100:8"}, "setup": "make", "envs": {"A": "1"}})
    assert "run" not in found.job_yaml
    assert "name" in found.to_fill
    assert any("setup" in line for line in found.not_carried)


@pytest.mark.parametrize(
    ("task", "word"),
    [
        ([], "mapping"),
        ({"name": "pipeline"}, "first document"),
        ({"service": {"replicas": 2}, "run": "x"}, "service"),
        ({"resources": "H100:8"}, "resources"),
        ({"resources": {"any_of": "H100"}}, "list"),
        ({"resources": {"any_of": ["H100"]}}, "alternative"),
        ({"run": "x", "num_nodes": 0}, "num_nodes"),
        ({"run": "x", "num_nodes": "two"}, "num_nodes"),
        ({"run": "x", "envs": ["A=1"]}, "envs"),
        ({"run": "x", "file_mounts": "data"}, "file_mounts"),
    ],
)
def test_what_is_no_training_task_is_refused(task: Any, word: str) -> None:
    with pytest.raises(InvalidInputError, match=word):
        from_skypilot(task)


def test_unknown_fields_are_listed_not_dropped() -> None:
    found = from_skypilot({**a_task(accelerators="H100", colour="red"), "flavour": 1})
    assert any(line.startswith("colour") for line in found.not_carried)
    assert any(line.startswith("flavour") for line in found.not_carried)
