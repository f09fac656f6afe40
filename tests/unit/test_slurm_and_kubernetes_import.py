"""Scripts for sbatch, PyTorchJobs and JobSets become jobs: what is carried, what is listed, what is refused."""

from __future__ import annotations

import copy
import json
import os
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml

from pricing.book_file import embedded_book
from pricing.problems import InvalidInputError
from router.cli.import_jobs import import_k8s, import_sky, import_slurm
from router.config.book_check import check_against_book
from router.config.imported_files import sold_machines
from router.config.job_files import load_jobs
from router.jobs.imported_job import foreign_file, without_marks
from router.jobs.kubernetes import from_kubernetes
from router.jobs.slurm import from_batch_script

BOOK = embedded_book()
SOLD = sold_machines(BOOK)
NOW = datetime(2026, 11, 21, 18, tzinfo=UTC)
SCRIPT = """\
#!/bin/bash
#SBATCH --job-name=Llama_SFT
#SBATCH -N 2 --ntasks-per-node=8
#SBATCH --gres=gpu:h100:8   # eight
#SBATCH --cpus-per-task=12 --mem 0
#SBATCH --time=2-00:00:00
#SBATCH --account=nlp -p gpu
#SBATCH --export=ALL,WANDB_API_KEY,EPOCHS=3
set -euo pipefail
module load cuda/12.4
head=$(srun --nodes=1 --ntasks=1 -w "$first" hostname --ip-address)
srun --cpu-bind=none \\
     --container-image=nvcr.io#nvidia/pytorch:24.10-py3 -l \\
     python train.py --epochs "$EPOCHS" --head $head
#SBATCH --nodes=9
"""


def slurm(options: str, body: str = "srun python t.py") -> dict[str, Any]:
    return from_batch_script(f"#!/bin/sh\n#SBATCH {options}\n{body}\n", SOLD, "train").job_yaml


def gang_of(job: dict[str, Any]) -> tuple[int, Any]:
    return job["gang"]["machines"], job["gang"]["accelerators"]


def test_a_whole_script() -> None:
    found = from_batch_script(SCRIPT, SOLD)
    job = found.job_yaml
    assert job["name"] == "llama-sft"
    assert job["gang"] == {"accelerators": ["H100:16"], "machines": 2}
    assert job["workload"]["profile"][0]["placement"] == "2x8"
    assert job["run"]["image"] == "nvcr.io/nvidia/pytorch:24.10-py3"
    assert job["run"]["env"] == {"WANDB_API_KEY": "secret:env:STEPFARE_JOB_WANDB_API_KEY", "EPOCHS": "3"}
    assert 'slurm_tasks 8 python train.py --epochs "$EPOCHS"' in job["run"]["command"]
    assert found.to_fill == ("team", "steps", "workload.profile.0.seconds_per_step")
    lost = "\n".join(found.not_carried)
    for word in ("--cpus-per-task 12", "--mem 0", "`deadline: +2d`", "--account nlp", "--partition gpu", "`module`"):
        assert word in lost
    assert "srun" not in job["run"]["command"]
    assert len(set(found.not_carried)) == len(found.not_carried)


@pytest.mark.parametrize(
    ("options", "machines", "gangs"),
    [
        ("--nodes=4 --gpus-per-node=h200:8", 4, ["H200:32"]),
        ("-N2 -G h100:16", 2, ["H100:16"]),
        ("-N 2-4 --gres=gpu:l40s:4", 2, ["L40S:8"]),
        ("--ntasks=16 --ntasks-per-node=8 --gpus-per-task=H100:1", 2, ["H100:16"]),
        ("--gres=gpu:A100_80GB:4,nvme:1", 1, ["A100-80GB:4"]),
        ("--tres-per-node=gres/gpu:h100:8", 1, ["H100:8"]),
        ("--gres=gpu:8 -C 'h100&ib'", 1, ["H100:8"]),
        ("--gpus=nvidia_h100_80gb_hbm3:8", 1, ["H100:8"]),
    ],
)
def test_machines_and_gpus_of_a_script(options: str, machines: int, gangs: list[str]) -> None:
    assert gang_of(slurm(options)) == (machines, gangs)


@pytest.mark.parametrize(
    ("options", "hint"),
    [
        ("-N 2 --gres=gpu:8", "8 GPUs on each of 2"),
        ("--gres=gpu:a100:4", "A100-40GB:4 or A100-80GB:4"),
        ("-N 2 --mem=4G", "no GPUs"),
        ("--gres=gpu:h100:3", "asked for is H100:3"),
    ],
)
def test_gpus_that_are_not_clear_are_to_be_filled_in(options: str, hint: str) -> None:
    job = slurm(options)
    assert hint in json.dumps(job["gang"])
    assert job["gang"]["machines"] == (2 if "-N 2" in options else 1)


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("echo hi\n", "1", "no #SBATCH line"),
        ("#SBATCH -N 2\n#SBATCH --array=0-9%2\n", "2", "many jobs"),
        ("#SBATCH -N 1\n#SBATCH hetjob\n", "2", "several parts"),
        ("#SBATCH --nodes=two\n", "1", "no number of machines"),
        ("#SBATCH --ntasks-per-node=0\n#SBATCH --gres=gpu:h100:8\n", "1", "no number"),
        ("#SBATCH -N 2\n#SBATCH --gres=gpu:a100:2,gpu:v100:2\n", "2", "GPUs of one type"),
        ("#SBATCH -N 3\n\n#SBATCH --gpus=8\n", "3", "whole machines"),
        ("#SBATCH --nodes\n", "1", "cannot be read"),
    ],
)
def test_scripts_that_no_job_can_be_are_refused_at_their_line(text: str, line: str, words: str) -> None:
    with pytest.raises(InvalidInputError, match=words) as caught:
        from_batch_script(text, SOLD)
    assert caught.value.problems[0].where == line


@pytest.mark.parametrize(
    ("limit", "words"), [("90", "1h30m"), ("10:30", "11m"), ("1:30:00", "1h30m"), ("1-12", "1d12h"), ("2-00:30", "2d")]
)
def test_a_time_limit_is_told_as_a_deadline(limit: str, words: str) -> None:
    lost = from_batch_script(f"#SBATCH -t {limit}\nsrun x\n", SOLD).not_carried
    assert any(f"`deadline: +{words}" in line for line in lost), lost


def test_only_a_script_that_may_be_put_back_may_use_spot() -> None:
    assert slurm("--requeue")["market"] == {"spot": "allowed"}
    assert slurm("--no-requeue")["market"] == {"spot": "never"}


def run_on(machine: int, job: dict[str, Any], folder: Path) -> list[str]:
    """Run the job's command as the agent does, with a torchrun that starts two processes."""
    torchrun = folder / "torchrun"
    torchrun.write_text(
        '#!/bin/sh\nwhile [ "$1" != sh ]; do shift; done\n'
        'for LOCAL_RANK in 0 1; do export LOCAL_RANK RANK=$((NODE_RANK * 2 + LOCAL_RANK)); "$@"; done\n'
    )
    torchrun.chmod(0o755)
    gang = {"NNODES": "2", "NODE_RANK": str(machine), "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29500"}
    gang |= {"SKYPILOT_NODE_IPS": "10.0.0.1\n10.0.0.2", "SKYPILOT_NUM_GPUS_PER_NODE": "2"}
    given = {name: value for name, value in job["run"].get("env", {}).items() if isinstance(value, str)}
    env = {"PATH": f"{folder}:{os.environ['PATH']}", **gang, **given}
    done = subprocess.run(
        ["/bin/sh", "-c", job["run"]["command"]], env=env, capture_output=True, text=True, check=True, timeout=60
    )
    return done.stdout.splitlines()


def test_the_imported_script_runs_its_tasks_on_each_machine(tmp_path: Path) -> None:
    body = """\
nodes=( $(scontrol show hostnames "$SLURM_JOB_NODELIST") )
export MASTER_ADDR=${nodes[0]}
srun --label sh -c 'echo "$SLURM_PROCID of $SLURM_NTASKS at $MASTER_ADDR, $SLURM_LOCALID on $SLURM_NODEID: $WORD"'
srun -n 2 --nodes=2 echo once
"""
    job = slurm("-N 2 --ntasks-per-node=2 --gres=gpu:h100:2 --export=WORD='two words'", body)
    assert run_on(1, job, tmp_path) == [
        "2 of 4 at 10.0.0.1, 0 on 1: two words",
        "3 of 4 at 10.0.0.1, 1 on 1: two words",
        "once",
    ]


PYTORCHJOB: dict[str, Any] = {
    "apiVersion": "kubeflow.org/v1",
    "kind": "PyTorchJob",
    "metadata": {"name": "llama", "namespace": "ml", "labels": {"project": "chat", "kueue.x-k8s.io/queue-name": "q"}},
    "spec": {
        "runPolicy": {"backoffLimit": 3, "activeDeadlineSeconds": 86400},
        "pytorchReplicaSpecs": {
            name: {
                "replicas": replicas,
                "template": {
                    "spec": {
                        "nodeSelector": {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"},
                        "containers": [
                            {
                                "name": "pytorch",
                                "image": "ghcr.io/team/train:3",
                                "command": ["torchrun", "train.py", "--lr", "$(LR)", "--note", "a b $x"],
                                "env": [
                                    {"name": "LR", "valueFrom": {"configMapKeyRef": {"name": "cfg", "key": "lr"}}},
                                    {"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "hf", "key": "t"}}},
                                    {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
                                    {"name": "OUT", "value": "/out/$(LR)"},
                                ],
                                "resources": {"limits": {"nvidia.com/gpu": 8, "rdma/ib": 1}},
                            }
                        ],
                        "volumes": [{"name": "shm", "emptyDir": {}}, {"name": "d", "persistentVolumeClaim": {}}],
                    }
                },
            }
            for name, replicas in (("Worker", 3), ("Master", 1))
        },
    },
}
CONFIG = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "cfg"}, "data": {"lr": "1e-6"}}


def a_pytorchjob() -> tuple[dict[str, Any], dict[str, Any]]:
    """A PyTorchJob, and the container of its master."""
    item = copy.deepcopy(PYTORCHJOB)
    return item, item["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]["containers"][0]


def test_a_whole_pytorchjob() -> None:
    (found,) = from_kubernetes([CONFIG, PYTORCHJOB], SOLD)
    job = found.job_yaml
    assert job["gang"] == {"accelerators": ["H100:32"], "machines": 4, "rdma": "required"}
    assert (job["name"], job["labels"], job["run"]["engine"]) == ("llama", {"project": "chat"}, "torchrun")
    assert job["run"]["command"] == "torchrun train.py --lr \"${LR}\" --note 'a b $x'"
    assert job["run"]["env"] == {
        "LR": "1e-6",
        "HF_TOKEN": "secret:env:STEPFARE_JOB_HF_TOKEN",
        "OUT": "/out/1e-6",
    }
    lost = "\n".join(found.not_carried)
    for word in ("env IP", "backoffLimit", "`deadline: +1d`", "volume d", "spot"):
        assert word in lost
    assert "shm" not in lost


def test_a_master_of_its_own_command_runs_it_on_the_first_machine(tmp_path: Path) -> None:
    item, master = a_pytorchjob()
    master |= {"command": ["bash", "-c"], "args": ["echo master $RANK of $WORLD_SIZE"]}
    worker = item["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]
    worker |= {"command": ["sh", "-c"], "args": ["echo worker $RANK"]}
    (found,) = from_kubernetes([item], SOLD)
    assert run_on(0, found.job_yaml, tmp_path) == ["master 0 of 2"]
    assert run_on(1, found.job_yaml, tmp_path) == ["worker 1"]
    assert "run.env.LR" in found.to_fill  # its map is not in the file


def test_a_jobset_counts_the_pods_that_ask_for_gpus() -> None:
    pod = {
        "nodeSelector": {
            "cloud.google.com/gke-accelerator": "nvidia-h100-mega-80gb",
            "cloud.google.com/gke-spot": "true",
            "topology.kubernetes.io/region": "us-central1",
        },
        "containers": [
            {"name": "side", "image": "x"},
            {
                "name": "t",
                "image": "pytorch",
                "command": ["bash", "-xc"],
                "args": ["torchrun --node_rank=$JOB_COMPLETION_INDEX t.py $JOBSET_NAME"],
                "resources": {"limits": {"nvidia.com/gpu": "8"}},
            },
        ],
    }
    driver = {"containers": [{"name": "d", "image": "x", "command": ["sleep"]}]}
    spec = {
        "replicatedJobs": [
            {"name": "driver", "template": {"spec": {"template": {"spec": driver}}}},
            {"name": "w", "replicas": 2, "template": {"spec": {"parallelism": 4, "template": {"spec": pod}}}},
        ]
    }
    item = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": "pt"}, "spec": spec}
    (found,) = from_kubernetes([{"apiVersion": "v1", "kind": "List", "items": [item]}], SOLD)
    job = found.job_yaml
    assert gang_of(job) == (8, ["H100:64"])
    assert (job["market"], job["residency"]) == ({"spot": "only"}, {"allow": ["us-central1"]})
    assert job["run"]["command"].startswith('export JOB_COMPLETION_INDEX="$NODE_RANK"\n')
    lost = "\n".join(found.not_carried)
    for word in ("driver: asks for no accelerator", "containers beside t", "JOBSET_NAME"):
        assert word in lost


def test_an_image_s_own_command_is_to_be_filled_in() -> None:
    item, master = a_pytorchjob()
    del master["command"]
    (found,) = from_kubernetes([item], SOLD)
    assert "run.command" in found.to_fill


def test_pods_that_differ_and_wrong_numbers_are_refused() -> None:
    item, master = a_pytorchjob()
    master["resources"] = {"limits": {"nvidia.com/gpu": 4}}
    with pytest.raises(InvalidInputError, match="4 and 8 accelerators"):
        from_kubernetes([item], SOLD)
    item, _ = a_pytorchjob()
    item["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"] = "two"
    with pytest.raises(InvalidInputError, match="no number of pods"):
        from_kubernetes([CONFIG, item], SOLD)


JUNK: tuple[Any, ...] = (None, 0, -1, 1.5, True, "", "a b", [], [None], {}, {"a": "b"}, [{"a": 1}], "8", "$X")


def spoiled(item: Any, rng: Random) -> Any:
    """The object with one value replaced by another, anywhere in it."""
    if isinstance(item, dict) and item and rng.random() < 0.9:
        key = rng.choice(sorted(item))
        return {**item, key: spoiled(item[key], rng)}
    if isinstance(item, list) and item and rng.random() < 0.9:
        at = rng.randrange(len(item))
        return [*item[:at], spoiled(item[at], rng), *item[at + 1 :]]
    return copy.deepcopy(rng.choice(JUNK))


@pytest.mark.slow
def test_nothing_but_a_named_refusal_follows_from_what_is_wrong_in_a_file() -> None:
    rng, refused = Random(34), 0
    for _ in range(500):
        letters = list(SCRIPT)
        letters[rng.randrange(len(letters))] = rng.choice("\n'\"-=$#( :9\\")
        try:
            from_kubernetes([CONFIG, spoiled(spoiled(PYTORCHJOB, rng), rng)], SOLD)
            from_batch_script("".join(letters), SOLD)
        except InvalidInputError:
            refused += 1
    assert 0 < refused < 500


FOREIGN = {
    "compose": ("services: {web: {image: x}}", "a Docker Compose file"),
    "pod": ("apiVersion: v1\nkind: Pod\nspec: {containers: []}", "a Pod of Kubernetes"),
    "ray": ("cluster_name: a\nprovider: {type: aws}", "a Ray cluster configuration"),
    "actions": ("on: push\njobs: {a: {runs-on: x}}", "a GitHub Actions workflow"),
    "dstack": ("type: task\ncommands: [x]", "a dstack configuration"),
    "ansible": ("- {hosts: all, tasks: []}", "an Ansible playbook"),
}


@pytest.mark.parametrize("name", FOREIGN)
def test_a_file_of_another_tool_is_refused_by_name(name: str, tmp_path: Path) -> None:
    text, words = FOREIGN[name]
    file = tmp_path / "file.yaml"
    file.write_text(text)
    for command in (import_sky, import_slurm, import_k8s):
        with pytest.raises(InvalidInputError) as caught:
            command(file, None)
        assert words in caught.value.problems[0].what
        assert caught.value.problems[0].where.startswith(str(file))
    with pytest.raises(InvalidInputError, match=words):
        load_jobs([file], NOW) if name != "ansible" else command(file, None)


def test_each_import_names_the_one_that_reads_the_file(tmp_path: Path) -> None:
    files = {"sky": "resources: {}\nrun: x\n", "slurm": SCRIPT, "k8s": yaml.safe_dump(PYTORCHJOB)}
    for right, text in files.items():
        file = tmp_path / right
        file.write_text(text)
        for name, command in (("sky", import_sky), ("slurm", import_slurm), ("k8s", import_k8s)):
            if name != right:
                with pytest.raises(InvalidInputError) as caught:
                    command(file, None)
                assert caught.value.problems[0].remedy == f"turn it into a job: stepfare import {right} {file}"


def test_a_job_file_is_no_file_of_another_tool() -> None:
    assert foreign_file({"gang": {}, "workload": {}, "services": 1, "resources": 2}) is None


def test_what_is_written_validates_once_it_is_filled_in(tmp_path: Path) -> None:
    script, manifest, jobs = tmp_path / "a.sbatch", tmp_path / "p.yaml", tmp_path / "jobs"
    script.write_text(SCRIPT)
    other = copy.deepcopy(PYTORCHJOB)
    other["metadata"]["name"] = "second"
    manifest.write_text(yaml.safe_dump_all([CONFIG, PYTORCHJOB, other]))
    import_slurm(script, tmp_path / "slurm.yaml")
    import_k8s(manifest, jobs)
    assert sorted(file.name for file in jobs.iterdir()) == ["llama.yaml", "second.yaml"]
    for file in (tmp_path / "slurm.yaml", *jobs.iterdir()):
        job = without_marks(yaml.safe_load(file.read_text()), {"steps": 9, "seconds_per_step": 1})
        file.write_text(json.dumps(job))
    loaded = load_jobs([tmp_path / "slurm.yaml", jobs], NOW)
    check_against_book(loaded, BOOK)
    assert [job.gang.machines for job in loaded.jobs] == [2, 4, 4]


def test_several_jobs_need_a_folder_and_names_of_their_own(tmp_path: Path) -> None:
    manifest = tmp_path / "p.yaml"
    manifest.write_text(yaml.safe_dump_all([PYTORCHJOB, PYTORCHJOB]))
    for out, words in ((tmp_path / "job.yaml", "holds 2 jobs"), (tmp_path / "jobs", "one name")):
        with pytest.raises(InvalidInputError, match=words):
            import_k8s(manifest, out)
        assert not out.exists()
