"""Weather made by an adversary."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from router.quoting.scene import Scene
from router.quoting.simulation import SPOT, Actions, Now, Player, VectorPolicy


@dataclass(frozen=True)
class Malice:
    """Weather that knows the policy: what it starts is taken after ``patience`` ticks, and is there again at once."""

    inner: VectorPolicy
    patience: int

    def begin(self, scene: Scene) -> Player:
        play, kept = self.inner.begin(scene), np.zeros(scene.starts.size, dtype=np.int64)

        def spoil(now: Now) -> Actions:
            kind, zone = play(now)
            wanted = kind == SPOT
            kept[now.window] = np.where(wanted, kept[now.window] + 1, 0)
            at = scene.starts[now.window] + now.tick + 1
            inside = at < scene.up.shape[1]
            taken = wanted & (kept[now.window] >= self.patience)
            scene.up[:, at[inside]] = True
            scene.up[zone[inside & taken], at[inside & taken]] = False
            kept[now.window[taken]] = 0
            return kind, zone

        return spoil
