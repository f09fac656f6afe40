"""Describe the layout of a transformer on a gang: memory by term, and the seconds of a step by what takes them."""

from __future__ import annotations

from dataclasses import dataclass, fields

from pricing.machines import Accelerator, Machine
from router.jobs.layouts import ChosenLayout, MemoryNeed, compute_parts, memory_need, time_layouts
from router.jobs.speed import UnknownSpeed, gang_links, usable_memory_gib
from router.jobs.workload import Transformer


@dataclass(frozen=True, slots=True)
class StepSeconds:
    """The estimated seconds that each part of a step would take alone; ``step`` is shorter where parts overlap.

    ``memory`` is traffic of activations and optimizer states, ``tensor`` what layers and stages hand over, ``experts``
    their all-to-all, ``exchange`` that of gradients and weights, ``bubble`` a pipeline's idle time.
    """

    matrices: float
    attention: float
    launches: float
    memory: float
    tensor: float
    experts: float
    exchange: float
    bubble: float
    step: float

    @property
    def kinds(self) -> dict[str, float]:
        """Return the parts by what limits them: compute, memory, communication, pipeline bubble."""
        return {
            "compute": self.matrices + self.attention + self.launches,
            "memory": self.memory,
            "communication": self.tensor + self.experts + self.exchange,
            "pipeline bubble": self.bubble,
        }

    @property
    def largest(self) -> tuple[str, float]:
        kinds = self.kinds
        name = max(kinds, key=lambda kind: kinds[kind])
        return name, kinds[name] / sum(kinds.values())


@dataclass(frozen=True, slots=True)
class GangLayout:
    """A layout with what it needs of each accelerator's memory, what that has, and its step.

    Where no layout fits it is the one that needs least.
    """

    layout: ChosenLayout
    need: MemoryNeed
    room_gib: float
    seconds: StepSeconds

    @property
    def fits(self) -> bool:
        return self.need.total <= self.room_gib

    @property
    def largest_need(self) -> str:
        return max((field.name for field in fields(self.need)), key=lambda name: float(getattr(self.need, name)))


def gang_layout(
    model: Transformer, machine: Machine, machines: int, accelerator: Accelerator
) -> GangLayout | UnknownSpeed:
    """Return the fastest layout that fits, else the one that needs least memory; or why there is none at all."""
    links = gang_links(model.precision, machine, machines, accelerator)
    if isinstance(links, UnknownSpeed):
        return links
    timed = time_layouts(model, links)
    if timed is None:
        return UnknownSpeed(f"no layout splits the job over {links.count} accelerators as its `layout` states")
    room = usable_memory_gib(accelerator)
    allowed, least = timed.fitting(model, room)
    at = timed.fastest(allowed) if allowed else least
    layout, parts = timed.layouts[at], timed.parts
    own = compute_parts(model, links, layout)
    seconds = StepSeconds(
        matrices=float(own.matrices[0]),
        attention=float(own.attention[0]),
        launches=float(own.launches[0]),
        memory=float(own.memory[0] + own.update[0]),
        tensor=float(parts.tensor[at]),
        experts=float(parts.experts[at]),
        exchange=float(parts.exchange[at]),
        bubble=float(parts.bubble[at]),
        step=float(parts.seconds[at]),
    )
    return GangLayout(layout, memory_need(model, layout), room, seconds)
