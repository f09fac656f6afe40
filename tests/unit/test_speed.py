"""How fast a gang runs a job: measured points win, the fabric matters, a shape that does not fit is refused."""

from __future__ import annotations

import csv
import itertools
import statistics
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from pricing.book_file import embedded_book
from pricing.machines import Accelerator, Machine
from router.jobs.layouts import Links
from router.jobs.speed import Speed, UnknownSpeed, gang_links, gang_speed
from router.jobs.step_model import read_coefficients
from router.jobs.workload import Workload
from tests.support.books import MACHINE, MODEL
from tests.support.narrowed import present, typed

NO_RDMA = replace(MACHINE, fabric="ethernet", inter_node_gbps=100.0)
SINGLE = replace(MACHINE, instance_type="p5.4xlarge", accelerator_count=1, intra_node_gb_per_s=None)
SHAPE: dict[str, Any] = {
    "parameters": 7e9,
    "layers": 32,
    "hidden": 4096,
    "sequence_length": 2048,
    "tokens_per_step": 2**21,
}
RUNS = Path(__file__).resolve().parents[3] / "shared/facts/published_training_runs.csv"
# Names of the published tables -> ours. Power-capped and small-batch runs are other machines in all but name.
PUBLISHED = {"H100-SXM-80GB": "H100", "A100-SXM-80GB": "A100-80GB", "A100-SXM-40GB": "A100-40GB"}


def point(count: int, steps_per_hour: float, **more: Any) -> dict[str, Any]:
    return {"accelerator": "H100", "count": count, "steps_per_hour": steps_per_hour, **more}


def profile(*points: dict[str, Any]) -> Workload:
    return Workload.model_validate({"profile": list(points)})


def shape(**changes: Any) -> Workload:
    return Workload.model_validate({"transformer": SHAPE | changes})


def speed(work: Workload, machines: int, machine: Machine = MACHINE, model: Accelerator = MODEL) -> Speed:
    return typed(Speed, gang_speed(work, machine, machines, model))


def refusal(work: Workload, machines: int, machine: Machine = MACHINE, model: Accelerator = MODEL) -> str:
    found = typed(UnknownSpeed, gang_speed(work, machine, machines, model))
    return found.reason


def test_a_measured_point_is_taken_as_it_is() -> None:
    found = speed(profile(point(8, 60, relative_error=0.03, source="a run"), point(16, 110)), 1)
    assert (found.steps_per_hour, found.relative_error, found.basis) == (60, 0.03, "measured: a run")


def test_between_two_points_lies_their_power_law() -> None:
    work = profile(point(8, 60), point(32, 180, relative_error=0.2))
    found = speed(work, 2)
    assert found.steps_per_hour == pytest.approx(60 * 3**0.5)
    assert found.relative_error == 0.2
    assert speed(profile(point(8, 60), point(32, 180)), 2).relative_error == 0.10
    assert found.basis == "between measured 8 and 32"


def test_beyond_the_points_more_machines_help_less() -> None:
    work = profile(point(8, 60))
    found = speed(work, 4)
    assert found.steps_per_hour == pytest.approx(60 * 4**0.9)
    assert found.relative_error == pytest.approx(0.05 + 2 * 0.08)
    below = speed(profile(point(32, 240)), 1)
    assert below.steps_per_hour == pytest.approx(60)


def test_the_nearest_point_is_the_one_scaled() -> None:
    work = profile(point(8, 60), point(16, 100))
    assert speed(work, 4).basis == "scaled from measured 16"


@pytest.mark.parametrize(("count", "machines"), [(8, 5), (64, 1)])
def test_too_far_from_any_point_is_no_answer(count: int, machines: int) -> None:
    assert "too far" in refusal(profile(point(count, 60)), machines)


def test_too_far_falls_back_on_the_shape() -> None:
    work = Workload.model_validate({"profile": [point(8, 60)], "transformer": SHAPE})
    assert speed(work, 16).basis.startswith("estimated")
    assert speed(work, 1).basis.startswith("measured")


def test_points_of_another_accelerator_say_nothing() -> None:
    assert "no profile for H100" in refusal(profile({**point(8, 60), "accelerator": "A100-80GB"}), 1)


def test_what_was_measured_over_rdma_says_nothing_without_it() -> None:
    """Plain TCP in its place was 26 to 57 times slower when measured."""
    over_rdma = profile(point(16, 110), point(32, 200, fabric="rdma"))
    assert speed(over_rdma, 2).steps_per_hour == 110
    assert "RDMA" in refusal(over_rdma, 2, NO_RDMA)
    assert "RDMA" in refusal(over_rdma, 2, replace(MACHINE, fabric=None))


def test_what_was_measured_over_ethernet_holds_only_there() -> None:
    work = profile(point(16, 20, fabric="ethernet"))
    assert speed(work, 2, NO_RDMA).steps_per_hour == 20
    assert isinstance(gang_speed(work, MACHINE, 2, MODEL), UnknownSpeed)


def test_within_one_machine_the_fabric_does_not_matter() -> None:
    for fabric in (None, "rdma", "ethernet"):
        assert speed(profile(point(8, 60, fabric=fabric)), 1, NO_RDMA).steps_per_hour == 60


def test_an_estimate_is_flops_over_what_is_reached() -> None:
    """One H100, nothing to exchange: 30 to 55 % of the peak, as published runs of such sizes reach."""
    found = speed(shape(parameters=1.3e9, layers=24, hidden=2048), 1, SINGLE)
    flops = (6 * 1.3e9 + 6 * 24 * 2048 * 2048) * 2**21
    assert 0.30 < found.steps_per_hour * flops / 3600 / 989e12 < 0.55
    assert found.relative_error == read_coefficients().accuracy["dense:none:unknown"].error


def test_what_a_shape_asks_for_changes_the_estimate() -> None:
    base = speed(shape(), 1).steps_per_hour
    assert speed(shape(recompute="full"), 1).steps_per_hour == pytest.approx(base * 1.02 / (4 / 3), rel=0.02)
    assert speed(shape(causal=False), 1).steps_per_hour < base
    assert 1.1 < speed(shape(precision="fp8"), 1).steps_per_hour / base < 2
    assert speed(shape(precision="tf32"), 1).steps_per_hour < base
    assert speed(shape(precision="fp16"), 1).steps_per_hour == base
    assert speed(shape(lora=True), 1).steps_per_hour == pytest.approx(base * 1.4, rel=0.07)
    assert speed(shape(active_parameters=5e8), 1).steps_per_hour > 1.5 * base
    assert speed(shape(tokens_per_step=2**22), 1).steps_per_hour == pytest.approx(base / 2, rel=0.01)


def test_more_machines_are_faster_never_more_than_in_proportion() -> None:
    rates = [speed(shape(), machines).steps_per_hour for machines in (1, 2, 4, 8, 16)]
    assert rates == sorted(rates)
    for fewer, more in itertools.pairwise(rates):
        assert 1 < more / fewer <= 2.0001


def test_plain_ethernet_between_machines_is_far_slower() -> None:
    small_step = shape(tokens_per_step=2**17)
    fast = speed(small_step, 4).steps_per_hour
    slow = speed(small_step, 4, NO_RDMA).steps_per_hour
    assert slow < fast / 3
    assert speed(small_step, 1, NO_RDMA).steps_per_hour == speed(small_step, 1).steps_per_hour


def test_an_unknown_network_is_not_a_fast_one() -> None:
    unknown = replace(MACHINE, inter_node_gbps=None)
    assert "network of p5.48xlarge is unknown" in refusal(shape(), 2, unknown)
    assert speed(shape(), 1, unknown).steps_per_hour > 0


def test_fp8_needs_hardware_that_has_it() -> None:
    assert "no FP8" in refusal(shape(precision="fp8"), 1, model=replace(MODEL, fp8_dense_tflops=None))


def test_an_unheard_of_accelerator_is_estimated_with_more_doubt() -> None:
    other = replace(MODEL, name="X1")
    stated = {"software": "megatron", "software_date": "2025"}
    assert speed(shape(**stated), 1, model=other).relative_error == read_coefficients().unseen_error
    assert "without a published run on X1" in speed(shape(), 1, model=other).basis
    assert speed(shape(), 1, model=other).steps_per_hour < speed(shape(), 1).steps_per_hour


def test_who_states_the_software_gets_a_narrower_interval() -> None:
    """Published runs of one software differ less than those of all; a name of its own begins with its family's."""
    stated = {"software": "Megatron Bridge", "software_date": "2026-04"}
    known, unknown = speed(shape(**stated), 1), speed(shape(), 1)
    assert known.relative_error < 0.7 * unknown.relative_error
    assert "software not stated" in unknown.basis
    assert "software not stated" not in known.basis
    own = speed(shape(software="a trainer of ours"), 1)
    assert "none of them on a-trainer-of-ours" in own.basis
    assert replace(own, basis=unknown.basis) == unknown
    old = speed(shape(software="megatron", software_date=2021), 1)
    assert old.steps_per_hour < known.steps_per_hour
    with pytest.raises(ValidationError, match="is no date"):
        shape(software_date="last year")


def test_widths_that_fill_no_tile_cost_what_is_left_empty() -> None:
    """1,600 is 12.5 tiles of 128: the last half tile costs 4 %, not a third."""
    odd, even = (speed(shape(parameters=1.6e9, layers=48, hidden=hidden), 1) for hidden in (1600, 1664))
    assert 0.97 < odd.steps_per_hour / even.steps_per_hour < 1.05


def test_tpus_compute_eight_bits_in_sixteen_where_they_must() -> None:
    """Their chips are joined by the links of the peak rates, which the machine table does not repeat."""
    book = embedded_book()
    tpu = next(m for m in book.machines if m.instance_type == "tpu-v6e-8")
    model = present(book.accelerator("TPU-v6e"))
    small = {"parameters": 1.3e9, "layers": 24, "hidden": 2048}
    plain, eight = (speed(shape(**small, precision=p), 1, tpu, model) for p in ("bf16", "fp8"))
    assert eight.steps_per_hour == plain.steps_per_hour
    assert eight.relative_error >= read_coefficients().unseen_error
    assert "fp8 computed in 16 bit" in eight.basis
    links = typed(Links, gang_links("bf16", tpu, 1, model))
    assert (links.link, links.domain) == (225, 8)


def test_what_does_not_fit_into_memory_is_refused_with_the_figure() -> None:
    """70 billion parameters at 16 bytes are 1,043 GiB: 130 on each of 8, 33 on each of 32."""
    big = {"parameters": 70e9, "layers": 80, "hidden": 8192}
    assert "needs 1" in refusal(shape(**big), 1)
    assert "has 74 usable" in refusal(shape(**big), 1)
    assert "for weights, gradients and optimizer states" in refusal(shape(**big), 1)
    assert "`layout: auto` tries" in refusal(shape(**big), 1)
    assert speed(shape(**big), 4).steps_per_hour > 0


def test_what_is_not_sharded_has_to_fit_whole() -> None:
    assert "GiB" in refusal(shape(sharding="none"), 16)
    assert "GiB" in refusal(shape(parameters=30e9, sharding="zero1"), 16)
    assert speed(shape(sharding="none", lora=True), 1).steps_per_hour > 0
    assert speed(shape(parameters=3e9, sharding="none", layers=24, hidden=2560), 1).steps_per_hour > 0


def test_activations_count_too() -> None:
    long = {"sequence_length": 131_072, "recompute": "none"}
    assert "GiB" in refusal(shape(**long), 8)
    assert speed(shape(**long | {"recompute": "full"}), 8).steps_per_hour > 0


def published() -> list[tuple[dict[str, str], Machine, int]]:
    """Dense models in BF16 or FP8 by plain or fully sharded data parallelism on whole 8-accelerator machines."""
    book = embedded_book()
    machines: dict[str, Machine] = {}
    for machine in book.machines:
        if machine.accelerator_count == 8 and machine.has_rdma and machine.inter_node_gbps is not None:
            machines.setdefault(machine.accelerator, machine)
    chosen = []
    with RUNS.open(encoding="utf-8", newline="") as lines:
        for row in csv.DictReader(lines):
            name = PUBLISHED.get(row["accelerator"])
            whole = row["sharding"] in ("zero1", "zero3") and row["tokens_basis"] == "published"
            dense = row["active_params_b"] in ("", row["params_b"])
            plain = row["tensor_parallel"] == row["pipeline_parallel"] == "1"
            if not (name in machines and whole and dense and plain and row["precision"][:4] in ("bf16", "fp8-")):
                continue
            if float(row["params_b"]) < 3 or not 8 <= int(row["accelerators"]) <= 512:
                continue
            if int(row["accelerators"]) % 8 == 0 and row["global_batch_tokens"]:
                chosen.append((row, machines[name or ""], int(row["accelerators"]) // 8))
    return chosen


@pytest.mark.skipif(not RUNS.parents[1].is_dir(), reason="the published tables lie outside the repository")
def test_estimates_lie_near_published_runs() -> None:
    """Median error within the stated standard deviation; nine of ten within twice it.

    The memory check is left aside: published micro-batches and optimizers are not ours to know.
    """
    book, errors = embedded_book(), []
    for row, machine, count in published():
        tokens = int(float(row["global_batch_tokens"]))
        work = shape(
            parameters=float(row["params_b"]) * 1e9,
            layers=int(row["layers"]),
            hidden=int(row["hidden"]),
            sequence_length=int(row["seq_len"]),
            tokens_per_step=tokens,
            precision="fp8" if row["precision"].startswith("fp8") else "bf16",
            recompute=row["activation_recompute"] if row["activation_recompute"] == "full" else "none",
            sharding=row["sharding"],
            causal="non-causal" not in row["tflops_kind"],
        )
        model = present(book.accelerator(machine.accelerator))
        found = gang_speed(work, machine, count, replace(model, memory_gib=10**6))
        if isinstance(found, Speed):
            claimed = found.steps_per_hour * tokens / 3600
            errors.append((abs(claimed / float(row["tokens_per_s"]) - 1), found.relative_error))
    assert len(errors) >= 30
    assert statistics.median(error for error, _ in errors) <= 0.25
    assert sum(error <= 2 * stated for error, stated in errors) / len(errors) >= 0.9
