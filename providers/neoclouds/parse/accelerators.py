"""Matching of catalogue names such as ``A100``, ``H100 NVL`` or ``NVIDIA H100 80GB HBM3`` to the book's accelerators.

A name is matched to the book's own, taken apart into model, memory and form (SXM, PCIe, NVL). Where a name fits several
(``H100`` alone is sold as SXM and as PCIe card, which differ in speed), it is not guessed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from pricing.machines import Accelerator

UNKNOWN = "the accelerator is not in the book"
OTHER_MEMORY = "the accelerator has another memory than the one in the book"
NO_MEMORY = "the accelerator's memory is not stated, and the book knows several"
NO_FORM = "whether the accelerator is SXM, PCIe or NVL is not stated"

# Drivers report 3 to 7 % less than the nominal size; the sizes of one model are much further apart.
_MEMORY_TOLERANCE = 0.08
_OWN_NAME = re.compile(r"(?P<model>.+?)(?:-(?P<memory>\d+)GB)?(?:-(?P<form>PCIE|NVL))?")
_VENDOR = re.compile(r"(?:NVIDIA|AMD|TESLA|GEFORCE|INSTINCT)+")
_REST = re.compile(r"(?:SXM\d?|PCIE|NVL|HBM\d?E?|MEGA|\d{2,3}GB?|SERVEREDITION|WORKSTATIONEDITION)*")
_MEMORY = re.compile(r"(\d{2,3})GB?(?!\d)")
# Verda writes the form as one letter behind the memory: 1H100.80S.32V.
_SXM_BY_LETTER = re.compile(r"\b\d{2,3}S\b")


@dataclass(frozen=True, slots=True)
class _Known:
    accelerator: Accelerator
    memory: int | None
    form: str


def _squash(name: str) -> str:
    return _VENDOR.sub("", re.sub(r"[^A-Z0-9]", "", name.upper()))


def _form(text: str) -> str:
    if "PCIE" in text:
        return "PCIE"
    if "NVL" in text.replace("NVLINK", ""):
        return "NVL"
    return "SXM" if "SXM" in text or "HBM3" in text or "MEGA" in text else ""


class AcceleratorIndex:
    """The book's accelerators by model. Immutable once made."""

    def __init__(self, accelerators: Iterable[Accelerator]) -> None:
        self._models: dict[str, list[_Known]] = {}
        self._of: dict[str, str] = {}
        for accelerator in accelerators:
            parts = _OWN_NAME.fullmatch(accelerator.name.upper())
            if parts is None:
                continue
            memory = int(parts["memory"]) if parts["memory"] else None
            entry = _Known(accelerator, memory, parts["form"] or "")
            model = _squash(parts["model"])
            self._models.setdefault(model, []).append(entry)
            self._of[accelerator.name] = model
        # The longest names come first: A10G before A10, L40S before L4.
        self._order = sorted(self._models, key=lambda model: (-len(model), model))

    def find(self, name: str, memory_gib: float | None, hint: str = "") -> Accelerator | str:
        """Return the accelerator called ``name``, or why there is none (one of this module's reasons).

        ``memory_gib`` is that of one accelerator, as far as stated; ``hint`` is the machine's name, of which only the
        form is read.
        """
        model, rest = self._split(name)
        if model is None:
            return UNKNOWN
        stated = _MEMORY.search(rest)
        memory = float(stated[1]) if stated else memory_gib
        return self._choose(self._models[model], memory, _form(rest) or self._form_in(hint))

    def same_model(self, name: str, accelerator: str) -> bool:
        """Return whether ``name`` names the model of the book's ``accelerator``; memory and form aside."""
        model, _ = self._split(name)
        return model is not None and model == self._of.get(accelerator)

    def _split(self, name: str) -> tuple[str | None, str]:
        text = _squash(name)
        for model in self._order:
            if text.startswith(model) and _REST.fullmatch(text, len(model)):
                return model, text[len(model) :]
        return None, ""

    @staticmethod
    def _form_in(hint: str) -> str:
        return _form(hint.upper()) or ("SXM" if _SXM_BY_LETTER.search(hint) else "")

    @staticmethod
    def _choose(entries: list[_Known], memory: float | None, form: str) -> Accelerator | str:
        forms = {entry.form for entry in entries}
        if len(forms) == 1:
            if form == "NVL" and forms != {"NVL"}:
                return UNKNOWN  # NVL is a card of its own, with other figures.
            fitting = entries
        else:
            wanted = "" if form == "SXM" else form
            fitting = [entry for entry in entries if not form or entry.form == wanted]
        if not fitting:
            return UNKNOWN
        if memory is not None:
            near = [e for e in fitting if abs(memory / e.accelerator.memory_gib - 1) <= _MEMORY_TOLERANCE]
            if not near:
                return OTHER_MEMORY
            fitting = near
        if len(fitting) == 1:
            return fitting[0].accelerator
        return NO_FORM if len({entry.form for entry in fitting}) > 1 else NO_MEMORY
