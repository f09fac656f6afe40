"""Fabrics: every one that a plan counts on has a row, and its job gets what the row says, unless it says otherwise."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest

from pricing.book_file import embedded_book
from pricing.fabrics import fabrics, find_fabric
from pricing.machines import Machine
from router.agent.config import AgentConfig, CodeSource, FabricSetup
from router.agent.starters import IN_CONTAINER, check_fabric, command_line, container_options, fabric_environment
from router.controller.workspace.bootstrap import FABRIC_SCRIPTS
from router.jobs.measured_speed import explain_network
from router.jobs.speed import bus_bandwidth
from tests.support.narrowed import present

# Of https://github.com/crazyguitar/aws-gpu-communication-benchmark and others: machines, GB/s of 1 GiB all-reduced.
PUBLISHED = [
    ("aws", "p5.48xlarge", 2, 435.14),
    ("aws", "p5.48xlarge", 4, 280.3),
    ("aws", "p5.48xlarge", 16, 269.23),
    ("aws", "p5.48xlarge", 32, 220.08),
    ("aws", "p4de.24xlarge", 2, 76.79),
    ("aws", "p4d.24xlarge", 4, 29.61),
    ("aws", "p6-b200.48xlarge", 4, 361.99),
    ("gcp", "a3-megagpu-8g", 2, 187.0),
]


def the_machine(cloud: str, instance_type: str) -> Machine:
    return present(embedded_book().machine(cloud, instance_type))


def a_config(folder: Path, fabric: FabricSetup, *, image: bool = True) -> AgentConfig:
    return AgentConfig(
        attempt="a-1", job="a", rank=0, nodes=2, command="true", workdir=str(folder), coordinator="https://c",
        token_file="", log_folder="", spool_folder="", fabric=fabric,
        code=CodeSource("image", "pytorch:2") if image else CodeSource(),
    )  # fmt: skip


def test_every_fabric_of_machines_that_can_be_ordered_has_a_row() -> None:
    book = embedded_book()
    ordered = {(o.cloud, o.instance_type) for o in book.offers if o.provisionable}
    found = {(m.cloud, m.fabric) for key in ordered if (m := book.machine(*key)) is not None and m.has_rdma}
    assert found == {(row.cloud, row.fabric) for row in fabrics()}
    assert len(found) == len(fabrics())


def test_a_row_says_where_from_and_names_fixed_versions() -> None:
    for row in fabrics():
        assert row.source.startswith("https://"), row
        assert date.fromisoformat(row.as_of) <= date(2026, 11, 30)
        assert all("=" in pair for pair in row.environment.split())
        if row.setup is not None:
            script, *images = row.setup.split()
            assert FABRIC_SCRIPTS[script].startswith("#!/bin/sh\nset -eu\n")
            assert images
            assert all(image.rpartition(":")[2].startswith("v1.") for image in images)
    assert {row.setup.split()[0] for row in fabrics() if row.setup} == set(FABRIC_SCRIPTS)


@pytest.mark.parametrize("name", FABRIC_SCRIPTS)
def test_a_script_is_one_of_a_plain_shell(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(FABRIC_SCRIPTS[name])
    assert subprocess.run(["/bin/sh", "-n", tmp_path / name], check=False).returncode == 0


def test_a_fabric_that_nothing_sets_up_is_planned_as_ethernet_and_says_so() -> None:
    assert find_fabric("gcp", "gpudirect-tcpx") is None
    machine = the_machine("gcp", "a3-highgpu-8g")
    assert (machine.fabric, machine.inter_node_gbps) == ("ethernet", 200)
    assert "private archive" in explain_network(machine)
    assert bus_bandwidth(machine) == pytest.approx(200 / 8 * 0.35)


@pytest.mark.parametrize(("cloud", "instance_type", "machines", "measured"), PUBLISHED)
def test_a_healthy_fabric_is_above_half_of_what_plans_assume(
    cloud: str, instance_type: str, machines: int, measured: float
) -> None:
    assumed = present(bus_bandwidth(the_machine(cloud, instance_type)))
    assert measured >= assumed / 2, machines
    # NCCL over TCP instead: a published 4 GB/s on a3-mega.
    assert assumed / 2 > 4


def test_the_bus_is_no_faster_than_the_links_in_a_machine() -> None:
    machine = the_machine("aws", "p5.48xlarge")
    assert bus_bandwidth(machine) == 400
    assert bus_bandwidth(replace(machine, intra_node_gb_per_s=64)) == 32
    assert bus_bandwidth(replace(machine, inter_node_gbps=None)) is None


def test_a_container_gets_variables_folders_and_devices_of_what_is_there(tmp_path: Path) -> None:
    there, missing = tmp_path / "amazon", tmp_path / "missing"
    there.mkdir()
    fabric = FabricSetup(
        "efa", "FI_PROVIDER=efa X=^a,b=c", folders=f"{there} {missing} /dev/shm", libraries=f"{there} {missing}"
    )
    config = a_config(tmp_path, fabric)
    values = fabric_environment(config, {"X": "mine"}, {"PATH": "/bin"})
    assert values == {"FI_PROVIDER": "efa", "STEPFARE_FABRIC": str(there), "STEPFARE_LIBRARIES": str(there)}
    assert container_options(config) == [
        f"--volume={there}:/opt/stepfare/fabric{there}:ro",
        "--volume=/dev/shm:/dev/shm",
    ]
    line = command_line(config, values, "/control")
    assert {"--env=FI_PROVIDER", "--env=STEPFARE_FABRIC", *container_options(config)} <= set(line)
    assert line[line.index("-c") + 1].startswith(IN_CONTAINER)
    # A library path of the job's goes first.
    assert fabric_environment(config, {"LD_LIBRARY_PATH": "/mine"}, {})["LD_LIBRARY_PATH"] == f"/mine:{there}"


def test_a_process_on_the_machine_gets_the_library_path_itself(tmp_path: Path) -> None:
    config = a_config(tmp_path, FabricSetup("efa", "A=b", folders=str(tmp_path), libraries=str(tmp_path)), image=False)
    machine = {"LD_LIBRARY_PATH": "/machine"}
    assert fabric_environment(config, {}, machine) == {"A": "b", "LD_LIBRARY_PATH": f"{tmp_path}:/machine"}
    assert fabric_environment(config, {"LD_LIBRARY_PATH": "/mine"}, {})["LD_LIBRARY_PATH"] == f"/mine:{tmp_path}"
    assert fabric_environment(a_config(tmp_path, FabricSetup()), {}, machine) == {}


def test_a_script_of_the_fabrics_software_sets_more_and_the_row_and_the_job_win(tmp_path: Path) -> None:
    script = tmp_path / "set_nccl_env.sh"
    script.write_text(
        'if [[ -n $NCCL_LIB_DIR ]]; then export NCCL_TUNER="$NCCL_LIB_DIR/t"; fi\n'
        "export NCCL_A=1 NCCL_B=1 NCCL_C=1 HOME=x\n"
    )
    config = a_config(tmp_path, FabricSetup("roce", "NCCL_B=2", str(script)), image=False)
    values = fabric_environment(config, {"NCCL_C": "3"}, dict(os.environ))
    assert values == {"NCCL_TUNER": f"{tmp_path}/t", "NCCL_A": "1", "NCCL_B": "2"}
    script.write_text("exit 3\n")
    assert fabric_environment(config, {}, dict(os.environ)) == {"NCCL_B": "2"}


def test_an_image_keeps_a_folder_of_its_own_and_gets_the_machines_otherwise(tmp_path: Path) -> None:
    own, lacking, mounted = tmp_path / "own", tmp_path / "deep" / "lacking", tmp_path / "mounted"
    own.mkdir()
    (mounted / str(lacking)[1:]).mkdir(parents=True)
    program = IN_CONTAINER.replace("/opt/stepfare/fabric", str(mounted)) + 'echo "$LD_LIBRARY_PATH"'
    environment = {"PATH": os.environ["PATH"], "STEPFARE_FABRIC": f"{own} {lacking}", "STEPFARE_LIBRARIES": "/l1:/l2"}
    for before, after in (({}, "/l1:/l2"), ({"LD_LIBRARY_PATH": "/image"}, "/l1:/l2:/image")):
        done = subprocess.run(
            ["/bin/sh", "-c", program], env={**environment, **before}, capture_output=True, text=True, check=True
        )
        assert done.stdout == f"{after}\n"
    assert not own.is_symlink()
    assert lacking.resolve() == (mounted / str(lacking)[1:]).resolve()


def test_what_is_missing_on_a_machine_is_said(tmp_path: Path) -> None:
    fabric = FabricSetup("gpudirect-tcpxo", present=f"{tmp_path} {tmp_path}/ready /dev/null")
    check = check_fabric(a_config(tmp_path, fabric))
    assert check.problem == f"gpudirect-tcpxo is not set up: no {tmp_path}/ready"
    (tmp_path / "ready").touch()
    assert check_fabric(a_config(tmp_path, fabric)).problem == ""
