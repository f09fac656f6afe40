"""Accelerators of Azure sizes, derived from the size's name.

Names: "Azure VM sizes naming conventions" and the GPU series pages (Microsoft Learn): ``Standard_`` + family letters,
vCPUs, additive features, then optionally the accelerator and the version, joined by ``_``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

_SIZE = re.compile(r"Standard_(?P<family>N[A-Z]*)(?P<vcpus>\d+)(?:-\d+)?(?P<features>[a-z]*)(?:_(?P<rest>\w+))?")
_WHOLE_A10_VCPUS = 36

# Accelerators by family and by the word in the size's name.
_NAMED: Mapping[tuple[str, str], str] = MappingProxyType(
    {
        ("NC", "A100"): "A100-80GB",
        ("NC", "H100"): "H100-NVL",
        ("NCC", "H100"): "H100-NVL",
        ("ND", "H100"): "H100",
        ("ND", "H200"): "H200",
        ("ND", "GB200"): "GB200",
        ("ND", "GB300"): "GB300",
        ("ND", "MI300X"): "MI300X",
        ("NC", "T4"): "T4",
        ("NC", "A10"): "A10",
        ("NV", "A10"): "A10",
        ("NG", "V620"): "V620",
        ("NV", "V710"): "V710",
        ("NC", "RTXPRO6000BSE"): "RTX-PRO-6000",
    }
)
_BY_VERSION: Mapping[tuple[str, str], str] = MappingProxyType(
    {
        ("NC", ""): "K80",
        ("NC", "v2"): "P100",
        ("NC", "v3"): "V100-16GB",
        ("ND", ""): "P40",
        ("ND", "v2"): "V100-32GB",
        ("ND", "v4"): "A100-40GB",
        ("NV", ""): "M60",
        ("NV", "v2"): "M60",
        ("NV", "v3"): "M60",
        ("NV", "v4"): "MI25",
    }
)
# Sizes with field-programmable gate arrays, on which nothing trains.
_OTHER = frozenset({"NP"})
UNKNOWN = "unknown"


def accelerator_of(instance_type: str) -> str | None:
    """Return the accelerator as the price book calls it, or as Azure does where the book may not know it.

    :data:`UNKNOWN` for an N family that no rule fits; None for a size without accelerators.
    """
    match = _SIZE.fullmatch(instance_type)
    if match is None or match["family"] in _OTHER:
        return None
    family, words = match["family"], [word for word in (match["rest"] or "").split("_") if word != "Promo"]
    version = words[-1] if words and re.fullmatch(r"v\d+", words[-1]) else ""
    if family == "ND" and "A100" in words:
        # The m is for more memory: ND96amsr_A100_v4 has 80 GB a card, ND96asr_A100_v4 has 40.
        return "A100-80GB" if "m" in match["features"] else "A100-40GB"
    named = [_NAMED[family, word] for word in words if (family, word) in _NAMED]
    if named:
        return named[0]
    others = [word for word in words if word != version]
    return _BY_VERSION.get((family, version), UNKNOWN) if not others else UNKNOWN


def is_accelerator_share(instance_type: str) -> bool:
    """Return whether the size has only a part of an accelerator, as the smaller NVads A10 and NCads A10 have."""
    match = _SIZE.fullmatch(instance_type)
    if match is None or accelerator_of(instance_type) != "A10":
        return False
    return match["family"] == "NC" or int(match["vcpus"]) < _WHOLE_A10_VCPUS
