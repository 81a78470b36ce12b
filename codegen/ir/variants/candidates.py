"""The candidates of a network's layers, and the ledger of all that were dropped: which, by whom and why."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from sartor.codegen.ir.variants.routine import Rejected, Variant


class Filter(StrEnum):
    """Who drops candidates, in the order in which they are asked."""

    PRECISION = "precision"
    OBJECTIVE = "objective"
    KERNELS = "kernels"
    ROUTINE = "routine"
    PREDICTION = "prediction"
    SAME_CODE = "same code"
    VALUES = "values"
    NEIGHBOURS = "neighbours"
    GUESSES = "guesses"
    PINS = "pins"
    FORMS = "forms"


@dataclass(frozen=True)
class Rejection:
    """Why a task has no variant of a routine, or not this one.

    Attributes:
        task: key of the task; empty for all tasks.
        routine: name of the routine.
        reason: shown to users, about the routine or variant as "it".
        by: who dropped it.
        variant: descriptor of the variant; empty for all of the routine's, or for some that nobody named.
    """

    task: str
    routine: str
    reason: str
    by: Filter = Filter.ROUTINE
    variant: str = ""


Judge = Callable[[str, Variant], Rejected | None]
"""Why a variant of the task with a key is dropped; None if it is kept."""


@dataclass(frozen=True)
class Candidates:
    """The variants of each task, and what is none.

    Attributes:
        variants: by task key, candidate 0 of each device before its others.
        ledger: all that were dropped, in the order of the filters.
    """

    variants: Mapping[str, tuple[Variant, ...]]
    ledger: tuple[Rejection, ...]

    def __add__(self, other: Candidates) -> Candidates:
        """The candidates of the same tasks on two devices."""
        joined = {key: (*own, *other.variants[key]) for key, own in self.variants.items()}
        return Candidates(joined, (*self.ledger, *other.ledger))

    @property
    def rejections(self) -> tuple[Rejection, ...]:
        """Why routines do not apply, by their own answers."""
        return tuple(entry for entry in self.ledger if entry.by is Filter.ROUTINE)

    def of_device(self, device: str) -> Candidates:
        """The candidates that run on one device."""
        variants = {key: tuple(one for one in listed if one.device == device) for key, listed in self.variants.items()}
        return Candidates(variants, self.ledger)

    def dropped_of(self, task: str) -> list[Rejection]:
        """What the ledger says about a task."""
        return [entry for entry in self.ledger if entry.task in ("", task)]

    def judged(self, by: Filter, judge: Judge) -> Candidates:
        """The candidates that a filter keeps; the others are in the ledger."""
        kept: dict[str, tuple[Variant, ...]] = {}
        dropped: list[Rejection] = []
        for key, variants in self.variants.items():
            answers = [(variant, judge(key, variant)) for variant in variants]
            kept[key] = tuple(variant for variant, answer in answers if answer is None)
            dropped += [
                Rejection(key, variant.routine, answer.reason, by, variant.descriptor)
                for variant, answer in answers
                if answer is not None
            ]
        return Candidates(kept, (*self.ledger, *dropped))
