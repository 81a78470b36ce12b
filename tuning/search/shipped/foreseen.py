"""The variants that are predicted to be fastest, chosen before their code is written.

Writing a kernel's code takes some milliseconds, and a network has a thousand variants. Where nothing is measured, only
those need code that may be selected.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sartor.codegen.analysis.task_facts import task_facts
from sartor.codegen.ir.layer import Task
from sartor.codegen.ir.machines.core import Core
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Parameters, Routine, describe
from sartor.codegen.routine_registry import described
from sartor.tuning.search.cost_model import CostModel
from sartor.tuning.search.shipped.likeness import Kin, predicted_seconds


@dataclass(frozen=True)
class Foreseen:
    """Of each routine the parameters for a task that are predicted to be fastest.

    Attributes:
        model: has seen other networks; None if the analytic model predicts.
        core: of the target, for the analytic model.
        seen: kin of the model's samples.
    """

    model: CostModel | None
    core: Core
    seen: frozenset[Kin] = frozenset()

    def __call__(
        self, task: Task, routine: Routine, parameters: Sequence[Parameters], target: Target
    ) -> Sequence[Parameters]:
        """The best of some parameters; all if there is no choice."""
        if len(parameters) < 2:
            return parameters
        variants = [described(describe(routine, task, parameter, target)) for parameter in parameters]
        seconds = predicted_seconds(task_facts(task), variants, self.model, self.seen, self.core)
        return [parameters[min(range(len(parameters)), key=seconds.__getitem__)]]
