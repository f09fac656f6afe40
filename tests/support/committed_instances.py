"""Random instances with committed spend on the on-demand machines that their jobs may use."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from itertools import islice
from random import Random
from typing import Any

from pricing.offers import Offer
from pricing.places import Market
from router.jobs.limits import Commitment, Limits
from tests.support.instances import Instance, make_instance
from tests.support.running_instances import make_running_instance

_TOO_MANY_PLANS = 50  # to try every plan of this instance takes minutes


def committed_seeds(count: int, step: int = 1) -> list[int]:
    """Return the first seeds, each ``step``-th one, whose instances can be solved by trying every plan."""
    seeds = (seed for seed in range(0, (count + 1) * step, step) if seed != _TOO_MANY_PLANS)
    return list(islice(seeds, count))


def make_committed_instance(seed: int) -> Instance:
    """The instance of that seed with one or two commitments; spot is often nearly as dear as on demand."""
    instance = make_running_instance(seed) if seed % 4 == 0 else make_instance(seed)
    rng = Random(f"commitments of {seed}")
    offers: dict[tuple[str, ...], Offer] = {}
    for offer in instance.book.offers:
        made = _offer(rng, offer)
        made = offer if made.key in offers or any(made.key == other.key for other in instance.book.offers) else made
        offers[made.key] = made
    book = replace(instance.book, offers=tuple(offers.values()))
    fields = instance.limits.model_dump(by_alias=True) | {"commitments": _commitments(rng, instance)}
    return replace(instance, book=book, limits=Limits.model_validate(fields))


def _offer(rng: Random, offer: Offer) -> Offer:
    """Most spot offers are sold on demand, at the prices that on-demand offers have."""
    if offer.market is not Market.SPOT or rng.random() < 0.3:
        return offer
    price = offer.usd_per_hour.times(rng.choice((1, 2)))
    return replace(offer, market=Market.ON_DEMAND, usd_per_hour=price, interruptions_per_hour=None)


def _commitments(rng: Random, instance: Instance) -> list[dict[str, Any]]:
    found: list[Commitment] = []
    for number in range(rng.choice((1, 1, 2))):
        offer = rng.choice(instance.book.offers)
        machine = instance.book.machine(offer.cloud, offer.instance_type)
        assert machine is not None
        fields: dict[str, Any] = {
            "name": f"plan-{number}",
            "cloud": offer.cloud,
            "usd_per_hour": f"{rng.choice((0.3, 0.6, 1.0, 1.5)) * offer.usd_per_hour.dollars():.2f}",
            "discount": rng.choice((0, 0.28, 0.5)),
        }
        fields |= rng.choice(
            (
                {},
                {"region": offer.region},
                {"instance_type": offer.instance_type},
                {"family": machine.family},
                {"accelerator": machine.accelerator},
            )
        )
        edges = [instance.now + instance.horizon * k / 8 for k in (-1, 2, 4, 6, 9)]
        first, second = sorted(rng.sample(edges, 2))
        fields |= rng.choice(({}, {}, {"from": first}, {"until": second}, {"from": first, "until": second}))
        made = Commitment.model_validate(fields)
        if not any(other.shares_machines(made) for other in found) and second - first > timedelta(0):
            found.append(made)
    return [item.model_dump(by_alias=True) for item in found]
