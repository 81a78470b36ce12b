"""Settings of a compilation to several plans in one file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sartor.codegen.ir.target import Target
from sartor.config import CompileConfig
from sartor.devices import GPU_KINDS
from sartor.errors import UsageError
from sartor.tuning.records.plan_set import PlanSet
from sartor.tuning.selection.problem.cost import Objective

MOST_PLANS = 32
"""Most plans in one file."""

Shapes = Mapping[str, tuple[int, ...]]


def settings_of(plans: PlanSet) -> tuple[tuple[Target, ...], tuple[Shapes, ...]]:
    """The targets and the shapes that saved plans are for."""
    named = dict.fromkeys(plan.plan.target for plan in plans.plans)
    targets = tuple(Target.create(device, level) for device, _, level in (name.partition(":") for name in named))
    shapes: list[Shapes] = []
    for plan in plans.plans:
        if plan.shapes not in shapes:
            shapes.append(plan.shapes)
    return targets, tuple(shapes)


def shapes_text(shapes: Shapes) -> str:
    """Shapes in words."""
    return " ".join(f"{name}={','.join(map(str, shape))}" for name, shape in shapes.items()) or "the model's shapes"


@dataclass(frozen=True)
class SeveralConfig:
    """Settings of a compilation to several plans in one file: one for each target with each binding of shapes.

    Attributes:
        base: settings that all plans share; its target and shapes do not count.
        targets: CPU levels of one instruction set, and GPUs.
        shapes: shapes of the inputs, the first of which stock tools get by default.
        is_open: whether each plan is for any size in some ranges; then ``shapes`` has one element without inputs.
    """

    base: CompileConfig
    targets: tuple[Target, ...]
    shapes: tuple[Shapes, ...] = field(default_factory=lambda: ({},))
    is_open: bool = False

    def __post_init__(self) -> None:
        """Check the settings.

        Raises:
            UsageError: if two plans would be for the same, if there are too many, or a setting does not fit them.
        """
        names = [str(target) for target in self.targets]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise UsageError(f"the target {twice} is named twice; name each level and each device once")
        if any(target.others for target in self.targets):
            raise UsageError(
                "a plan over two devices, as cpu,vulkan asks for, cannot be one of several in a file; "
                "give --target cpu --target vulkan for a plan for each"
            )
        if len({target.isa for target in self.targets if target.is_cpu}) > 1:
            raise UsageError("the CPU levels of a file must be of one instruction set; write a file for each")
        for device in GPU_KINDS:
            if sum(target.device == device for target in self.targets) > 1:
                raise UsageError(f"a file has one plan for the device {device}; name one architecture")
        if any(shape in self.shapes[:index] for index, shape in enumerate(self.shapes)):
            raise UsageError("the same shapes are given twice; give each once")
        count = len(self.targets) * len(self.shapes)
        if count > MOST_PLANS:
            raise UsageError(
                f"{len(self.targets)} targets with {len(self.shapes)} shapes are {count} plans, and a file has at most "
                f"{MOST_PLANS}; give fewer, or a narrower range"
            )
        if self.base.pareto is not None:
            raise UsageError("a Pareto front is of one plan; ask for that of each target and shape by itself")
        if self.base.objective is Objective.REGRET and not self.is_open:
            raise UsageError(
                f"--objective {Objective.REGRET} is about one plan for any size, and several plans are asked for; give "
                "a range of sizes, as --shape x=1..8,16, or leave the objective out"
            )
        if self.base.objective is Objective.COLD_LATENCY:
            raise UsageError(
                f"--objective {Objective.COLD_LATENCY} makes two plans, and a file that chooses among levels, devices "
                "or shapes has no later plan for each of them; name one of each, or give "
                f"--objective {Objective.COLD} or {Objective.LATENCY} for the file of several"
            )
