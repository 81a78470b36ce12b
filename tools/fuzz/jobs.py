"""What workers do for a campaign: many models in one module, or one model and one plan again."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from onnx import ModelProto

from sartor.workspace import workspace
from tools.fuzz.forced_plans import Forced, forced_by
from tools.fuzz.models import Family, Generated, generate, joined
from tools.fuzz.trial import PlanSeed, Setting, Subject, Wrong


@dataclass(frozen=True)
class Batch:
    """Models that share a module, and the plans that they are compiled by.

    Attributes:
        models: seeds.
        family: of the models.
        opset: of the models.
        plans: what to try.
    """

    models: tuple[int, ...]
    family: Family
    opset: int
    plans: tuple[PlanSeed, ...]

    @property
    def drawn(self) -> list[Generated]:
        """The models."""
        return [generate(seed, self.family, self.opset) for seed in self.models]


@dataclass(frozen=True)
class WrongModel:
    """A model of a batch with an output that is wrong.

    Attributes:
        model: its seed.
        plan: by which it was compiled.
        wrong: what is wrong, with the part of the plan that concerns the model.
    """

    model: int
    plan: PlanSeed
    wrong: Wrong


def run_batch(batch: Batch) -> list[WrongModel]:
    """Compare all models of a batch by all of its plans."""
    found = []
    with workspace() as directory:
        model = joined([each.model for each in batch.drawn])
        subject = Subject(model, batch.plans[0].setting.architecture, directory)
        for plan in batch.plans:
            recipe = subject.recipe(None, plan.setting)
            if plan.seed is not None:
                recipe = subject.forcer(plan.setting).random(plan.seed)
            found += [_of_model(batch, plan, each) for each in subject.wrong_outputs(recipe, plan.setting)]
    return list({(each.model, each.plan): each for each in reversed(found)}.values())


def _of_model(batch: Batch, plan: PlanSeed, wrong: Wrong) -> WrongModel:
    seed = next(each for each in batch.models if wrong.output.startswith(f"m{each}_"))
    forced = wrong.forced
    if forced is not None:
        forced = {layer: variant for layer, variant in forced.items() if f"m{seed}_" in layer}
    return WrongModel(seed, plan, Wrong(wrong.output, wrong.message, forced))


def draw_model(seed: int, family: Family, opset: int) -> bytes:
    """A model by its seed."""
    return generate(seed, family, opset).model.SerializeToString()


def draw_plan(model: bytes, plan: PlanSeed) -> Forced | None:
    """What a plan forces onto a model; None for the unsplit model."""
    if plan.seed is None:
        return None
    with workspace() as directory:
        subject = Subject(ModelProto.FromString(model), plan.setting.architecture, directory)
        return forced_by(subject.forcer(plan.setting).random(plan.seed))


def attempt(model: bytes, forced: Forced | None, setting: Setting) -> list[Wrong]:
    """Try a model by a plan again; what is wrong."""
    with workspace() as directory:
        subject = Subject(ModelProto.FromString(model), setting.architecture, directory)
        return list(subject.wrong_outputs(subject.recipe(forced, setting), setting))


def write_plan(model: bytes, forced: Forced | None, setting: Setting, path: Path) -> None:
    """Write a plan as ``--plan`` reads it."""
    with workspace() as directory:
        subject = Subject(ModelProto.FromString(model), setting.architecture, directory)
        subject.recipe(forced, setting).plan.save(path)
