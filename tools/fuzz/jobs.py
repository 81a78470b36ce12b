"""Jobs of a campaign's workers: compare a batch of models, or one model with one plan."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from onnx import ModelProto

from sartor.errors import SartorError, UnsupportedModelError
from sartor.workspace import workspace
from tools.fuzz.forced_plans import Forced, forced_by
from tools.fuzz.models import Family, Generated, generate, joined, opened
from tools.fuzz.open_trial import subject_of
from tools.fuzz.trial import PlanSeed, Setting, Subject, Wrong


@dataclass(frozen=True)
class Batch:
    """Models that are compiled into one module, and the plans for it.

    Attributes:
        models: seeds of the models.
        family: family of all models.
        opset: opset of all models.
        plans: plans to compile the module with.
        opens: whether a dimension of each model is open; then each is compiled alone.
    """

    models: tuple[int, ...]
    family: Family
    opset: int
    plans: tuple[PlanSeed, ...]
    opens: bool = False

    @property
    def drawn(self) -> list[Generated]:
        """The models, drawn by their seeds."""
        found = [generate(seed, self.family, self.opset) for seed in self.models]
        if not self.opens:
            return found
        return [replace(each, model=opened(each.model, np.random.default_rng(each.seed))) for each in found]


@dataclass(frozen=True)
class WrongModel:
    """A model of a batch with a wrong output.

    Attributes:
        model: seed of the model.
        plan: the plan that the batch was compiled with.
        wrong: the wrong output, with the part of the plan for this model.
    """

    model: int
    plan: PlanSeed
    wrong: Wrong


@dataclass(frozen=True)
class BrokenPlan:
    """A plan with which a batch does not compile or run, and the error."""

    plan: PlanSeed
    message: str


@dataclass(frozen=True)
class RefusedModel:
    """A model with an open dimension that is not computed alike for all sizes, and the reason."""

    model: int
    message: str


def run_batch(batch: Batch) -> list[WrongModel | BrokenPlan | RefusedModel]:
    """Compile a batch with each of its plans, and return the models with wrong outputs, the plans that fail, and the
    models that are refused at open sizes."""
    if batch.opens and len(batch.models) > 1:
        return [each for seed in batch.models for each in run_batch(replace(batch, models=(seed,)))]
    found: list[WrongModel] = []
    broken: list[BrokenPlan] = []
    with workspace() as directory:
        model = joined([each.model for each in batch.drawn])
        try:
            subject = subject_of(model, batch.plans[0].setting.architecture, directory)
        except UnsupportedModelError as error:
            if not batch.opens:
                raise
            return [RefusedModel(batch.models[0], str(error))]
        for plan in batch.plans:
            try:
                found += _wrong_models(batch, subject, plan)
            except SartorError as error:
                broken.append(BrokenPlan(plan, str(error)))
    return [*{(each.model, each.plan): each for each in reversed(found)}.values(), *broken]


def _wrong_models(batch: Batch, subject: Subject, plan: PlanSeed) -> list[WrongModel]:
    recipe = subject.recipe(None, plan.setting)
    if plan.seed is not None:
        recipe = subject.forcer(plan.setting).random(plan.seed)
    return [_of_model(batch, plan, wrong_output) for wrong_output in subject.wrong_outputs(recipe, plan.setting)]


def _of_model(batch: Batch, plan: PlanSeed, wrong: Wrong) -> WrongModel:
    seed = next(model for model in batch.models if wrong.output.startswith(f"m{model}_"))
    forced = wrong.forced
    if forced is not None:
        forced = {layer: variant for layer, variant in forced.items() if f"m{seed}_" in layer}
    return WrongModel(seed, plan, Wrong(wrong.output, wrong.message, forced))


def draw_model(batch: Batch) -> bytes:
    """Return the models of a batch as one serialised model."""
    return joined([each.model for each in batch.drawn]).SerializeToString()


def draw_plan(model: bytes, plan: PlanSeed) -> Forced | None:
    """Return the variants that a plan's seed forces for a model; None for the unsplit model."""
    if plan.seed is None:
        return None
    with workspace() as directory:
        subject = subject_of(ModelProto.FromString(model), plan.setting.architecture, directory)
        return forced_by(subject.forcer(plan.setting).random(plan.seed))


def attempt(model: bytes, forced: Forced | None, setting: Setting) -> list[Wrong]:
    """Compile and run a model with a plan, and return its wrong outputs."""
    with workspace() as directory:
        subject = subject_of(ModelProto.FromString(model), setting.architecture, directory)
        return list(subject.wrong_outputs(subject.recipe(forced, setting), setting))


def write_plan(model: bytes, forced: Forced | None, setting: Setting, path: Path) -> None:
    """Write a plan to a file that ``--plan`` reads."""
    with workspace() as directory:
        subject = subject_of(ModelProto.FromString(model), setting.architecture, directory)
        subject.recipe(forced, setting).plan.save(path)
