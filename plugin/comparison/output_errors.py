"""How far a module's outputs are off, by each of its plans, and what that says."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from sartor.comparison.compare_job import Answer
from sartor.reference.tied_codes import is_tied
from sartor.runtime.driver.signature import Array
from sartor.runtime.output_error import count_not_finite, output_error

_PLANS = ("the first inference", "later inferences")


@dataclass(frozen=True)
class OutputErrors:
    """Errors of outputs.

    Attributes:
        outputs: of the module by name, as each of its plans gave them: of one for all inferences, or of one for the
            first and one for later ones.
        right: the reference outputs, and what is allowed.
    """

    outputs: Sequence[Mapping[str, Array]]
    right: Answer

    @cached_property
    def by_plan(self) -> Sequence[Mapping[str, float]]:
        """Errors by name of the output, of each plan; infinite for one that only the module or only the model has."""
        return [_errors(outputs, self.right) for outputs in self.outputs]

    @cached_property
    def largest(self) -> Mapping[str, float]:
        """The error of each output by the plan that is furthest off."""
        return {name: max(errors[name] for errors in self.by_plan) for name in self.by_plan[0]}

    @property
    def missing(self) -> frozenset[str]:
        """Outputs that the module lacks, or the model."""
        return frozenset({*self.outputs[0]} ^ {*self.right.names})

    @property
    def worst(self) -> str | None:
        """The output that is furthest off, if there are any; a missing one before all others."""
        return max(self.largest, key=lambda name: (name in self.missing, self.largest[name]), default=None)

    @property
    def is_wrong(self) -> bool:
        """Whether one is further off than is allowed."""
        worst = self.worst
        return worst is not None and (worst in self.missing or self.largest[worst] > self.right.allowed)

    @property
    def is_later_worse(self) -> bool:
        """Whether the plan for later inferences is further off than that for the first, if there are two."""
        first, last = (max(errors.values(), default=0.0) for errors in (self.by_plan[0], self.by_plan[-1]))
        return last > first

    @property
    def worst_plan(self) -> str:
        """Which inferences the plan is for that is further off; empty if there is one plan."""
        return _PLANS[self.is_later_worse] if len(self.by_plan) > 1 else ""

    @property
    def not_compared(self) -> frozenset[str]:
        """Outputs that are not wrong, but have no finite number either."""
        outputs = zip(self.right.names, self.right.outputs, strict=True)
        without = {name for name, array in outputs if array.size and count_not_finite(array) == array.size}
        return frozenset(name for name in without if self.largest.get(name) == 0.0)

    @property
    def sentence(self) -> str:
        """What is wrong with the worst output, of which there is one."""
        name = self.worst
        assert name is not None
        if name not in self.outputs[0]:
            return f"the module lacks the output '{name}' of the model"
        if name not in self.right.names:
            return f"the model lacks the output '{name}' of the module"
        error, allowed = self.largest[name], self.right.allowed
        return f"output '{name}' has the relative error {error:.2g}, {allowed:g} is allowed for this model"

    @property
    def culprit(self) -> str:
        """By which of two plans the worst output is further off, to follow ``sentence``; empty if by none."""
        if len(self.by_plan) == 1 or self.worst is None:
            return ""
        first, later = (errors[self.worst] for errors in self.by_plan)
        return "" if first == later else f", by the plan for {_PLANS[later > first]}"


def _errors(outputs: Mapping[str, Array], right: Answer) -> dict[str, float]:
    expected = dict(zip(right.names, zip(right.outputs, right.scales, strict=True), strict=True))
    errors = {
        name: _error(output, *expected[name], is_coded=name in right.coded) if name in expected else math.inf
        for name, output in outputs.items()
    }
    return errors | {name: math.inf for name in expected if name not in outputs}


def _error(output: Array, right: Array, scale: Array, *, is_coded: bool) -> float:
    return 0.0 if is_coded and is_tied(output, right) else output_error(output, right, scale=scale)
