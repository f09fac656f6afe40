"""Machine images: what each machine type of a cloud boots from, and so which machines can be made at all.

Every row of ``tables/images.csv`` has its source and date. Machines of a cloud with rows there are ordered only when a
row names their image; where it names none, its note says why there is none.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cache

from pricing.machines import Machine
from pricing.table_rows import parse_rows, read_table

PRESENT = "present"


@dataclass(frozen=True, slots=True)
class MachineImage:
    """The image of the machine types of ``cloud`` that ``machines``, a pattern with ``*``, names.

    ``image`` is in the cloud's own notation (aws: the SSM parameter that holds it); None where no image is documented,
    and ``note`` then says why. ``container_runtime`` and ``toolkit`` are ``present``, or the version of Docker and of
    NVIDIA's container toolkit that a new machine installs; None is neither. ``fabric``, at ``fabric_gbps``, is
    what joins machines where the image cannot drive the fabric of the type, None where it can; ``fabric_software`` is
    what it has for the fabric, or lacks. ``vendor`` is nvidia or amd: how a container gets the accelerators.
    """

    cloud: str
    machines: str
    architecture: str
    image: str | None
    driver: str | None
    container_runtime: str | None
    toolkit: str | None
    fabric: str | None
    fabric_gbps: float | None
    fabric_software: str
    local_disks: str
    vendor: str
    source: str
    as_of: str
    note: str

    @property
    def installs(self) -> tuple[str, str] | None:
        """Return the versions of Docker and of the toolkit that a new machine installs; None where it need not."""
        if self.container_runtime in (None, PRESENT) or self.toolkit is None:
            return None
        return self.container_runtime or "", self.toolkit


@cache
def machine_images() -> tuple[MachineImage, ...]:
    """Return the rows of ``tables/images.csv``."""
    return parse_rows(MachineImage, read_table("images"))


@cache
def find_machine_image(cloud: str, instance_type: str) -> MachineImage | None:
    """Return the row of the machine type; None where no row names it."""
    rows = (row for row in machine_images() if row.cloud == cloud)
    return next((row for row in rows if fnmatchcase(instance_type, row.machines)), None)


@cache
def explain_unmade(cloud: str, instance_type: str) -> str:
    """Return why no image of the cloud serves the machine; "" where one does, or the cloud needs none."""
    row = find_machine_image(cloud, instance_type)
    if row is not None:
        return "" if row.image is not None else f"no image documents this machine ({row.note})"
    needs_image = any(each.cloud == cloud for each in machine_images())
    return "no image documents this machine" if needs_image else ""


def with_usable_fabric(machine: Machine) -> Machine:
    """Return the machine with the fabric that its image can drive."""
    row = find_machine_image(machine.cloud, machine.instance_type)
    if row is None or row.fabric is None or machine.fabric in (None, row.fabric):
        return machine
    return replace(machine, fabric=row.fabric, inter_node_gbps=row.fabric_gbps)


def explain_fabric(machine: Machine) -> str:
    """Return why the machine's image cannot drive the fabric of its type; "" where it can."""
    row = find_machine_image(machine.cloud, machine.instance_type)
    return "" if row is None or row.fabric is None else row.fabric_software
