"""Spot availability that knows the policy, and is against it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from router.spot.simulator.blind_policy import BlindPolicy, BlindView, LaunchRequest
from router.spot.simulator.blind_policy import PolicySession as Asker
from router.spot.simulator.inputs import SimulationInputs, SimulationSpec
from router.spot.simulator.simulation import SPOT, Actions, FullInfoPolicy, FullInfoSession, FullView
from router.spot.simulator.traces import Bools


@dataclass(frozen=True)
class Adversary:
    """Spot that knows the policy: what it starts is preempted after ``patience`` ticks, and is there again at once."""

    inner: FullInfoPolicy
    patience: int

    def begin(self, inputs: SimulationInputs) -> FullInfoSession:
        play, kept = self.inner.begin(inputs), np.zeros(inputs.starts.size, dtype=np.int64)

        def spoil(now: FullView) -> Actions:
            kind, zone = play(now)
            wanted = kind == SPOT
            kept[now.window] = np.where(wanted, kept[now.window] + 1, 0)
            at = inputs.starts[now.window] + now.tick + 1
            inside = at < inputs.up.shape[1]
            taken = wanted & (kept[now.window] >= self.patience)
            inputs.up[:, at[inside]] = True
            inputs.up[zone[inside & taken], at[inside & taken]] = False
            kept[now.window[taken]] = 0
            return kind, zone

        return spoil


@dataclass(frozen=True)
class AskedAdversary:
    """The same for one window of a policy that asks: where spot has run for ``patience`` ticks, and wherever it is
    tried, there is none in the next tick; everywhere else there is."""

    inner: BlindPolicy
    inputs: SimulationInputs
    patience: int

    def begin(self, terms: SimulationSpec, /) -> Asker:
        return _Spoiled(self, self.inner.begin(terms))


class _Spoiled:
    def __init__(self, adversary: AskedAdversary, player: Asker) -> None:
        self.adversary, self.player, self.kept = adversary, player, 0

    def act(self, known: BlindView, /) -> LaunchRequest:
        wish = self.player.act(known)
        up, at = self.adversary.inputs.up, int(self.adversary.inputs.starts[0]) + known.tick + 1
        self.kept = self.kept + 1 if known.kind[0] == SPOT else 0
        if at < up.shape[1]:
            up[:, at] = ~np.isfinite(wish.spot[:, 0])
            if known.kind[0] == SPOT:
                up[known.zone[0], at] = self.kept < self.adversary.patience
        return wish

    def look(self, known: BlindView, /) -> Bools | None:
        return self.player.look(known)
