"""Worker side: import a model, compile it with plans, and compare its outputs with ONNX Runtime's."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from onnx import ModelProto

from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.descriptor import without_parameters
from sartor.codegen.mlir.dispatches import lower
from sartor.config import CompileConfig
from sartor.errors import CompileError
from sartor.frontend.import_job import run_import
from sartor.frontend.imported_model import ImportedModel
from sartor.frontend.layer_tensors import layer_tensors
from sartor.onnx_model.graphs.prepared import prepared_model
from sartor.planning.recipe import Recipe, unsplit_recipe
from sartor.policies import Precision
from sartor.precision.calibration import graph_ranges
from sartor.precision.observe_job import Observed, observe
from sartor.reference.expected_outputs import Expectation, Expected
from sartor.reference.tie_spread import tie_spread
from sartor.reference.tolerance import MOST_BY_ITSELF, has_half_precision, tolerance
from sartor.runtime.driver.device import open_device
from sartor.runtime.driver.signature import Array
from sartor.runtime.output_error import output_error
from sartor.runtime.session import Session
from sartor.samples.sample_sets import DrawnSamples
from sartor.tuning.calibration.methods import MinMaxObserver
from sartor.tuning.calibration.quantised_range import QuantisedRange
from sartor.tuning.errors.error_measures import cosine_distance
from sartor.tuning.networks.build_job import NetFiles, SplitNetwork, UnsplitNetwork, build_net
from sartor.tuning.records.signature import net_signature
from sartor.tuning.workers.protocol import WorkerError
from tools.fuzz.forced_plans import Forced, PlanForcer, forced_by

SAMPLES = 2
"""Samples that a module runs on. It runs on the first sample again at the end, to detect state left in memory."""

# As a multiple of what ties move outputs by on other samples, and of outputs of models in half precision.
_OTHER_SAMPLES, _HALF_PRECISION = 1.5, 3e-2
# Bounds of the cosine distance by precision. A random plan may round every layer, so its relative error is large. The
# cosine distance still separates rounding from wrong results.
_ROUNDED = {
    Precision.BF16: 0.02,
    Precision.F16: 0.02,
    Precision.INT8: 0.15,
    Precision.INT8_WEIGHTS: 0.02,
    Precision.INT4_WEIGHTS: 0.15,
    Precision.MIXED: 0.15,
}


@dataclass(frozen=True)
class Setting:
    """The machine and precision that a plan is made for.

    Attributes:
        architecture: the CPU's architecture, as in ``--cpu``.
        threads: number of threads that code is generated for and runs with.
        precision: the precision that limits variants.
    """

    architecture: str = "host"
    threads: int = 1
    precision: Precision = Precision.F32

    @property
    def config(self) -> CompileConfig:
        """The setting as a configuration of the compiler."""
        target = Target.create("cpu", self.architecture)
        return CompileConfig(target=target, threads=self.threads, precision=self.precision)


@dataclass(frozen=True)
class PlanSeed:
    """The seed of a random plan for a setting; a seed of None is the unsplit model."""

    setting: Setting
    seed: int | None = None


@dataclass(frozen=True)
class Wrong:
    """An output that differs from ONNX Runtime's.

    Attributes:
        output: name of the output.
        message: the error and its bound.
        forced: the plan; None for the unsplit model.
    """

    output: str
    message: str
    forced: Forced | None


class Subject:
    """An imported model that is compiled with different plans.

    Args:
        model: the model to import.
        architecture: as in ``Setting``.
        directory: folder for files.
        shapes: of inputs with open dimensions, by name.
        imported: the model, if it was imported before.

    Raises:
        SartorError: if the model cannot be imported.
    """

    def __init__(
        self,
        model: ModelProto,
        architecture: str,
        directory: Path,
        shapes: Mapping[str, tuple[int, ...]] | None = None,
        imported: ImportedModel | None = None,
    ) -> None:
        self._directory = directory
        path = directory / "model.onnx"
        path.write_bytes(model.SerializeToString())
        found = imported or run_import(path, shapes or {}, None, directory, Setting(architecture).config.target)
        if isinstance(found, WorkerError):
            raise found.error
        self.imported: ImportedModel = found
        self._samples = DrawnSamples(found.skeleton, SAMPLES)
        self._known: dict[bool, list[Expected]] = {}
        self._numbers = itertools.count()

    @property
    def output_names(self) -> list[str]:
        """Names of the model's outputs, in order."""
        return [output.name for output in self.imported.graph.outputs]

    @property
    def samples(self) -> list[Mapping[str, Array]]:
        """The inputs that a module runs on."""
        return [*self._samples.since(0)]

    def forcer(self, setting: Setting) -> PlanForcer:
        """Return the maker of plans for a setting."""
        return PlanForcer(self._ranged(setting), setting.config)

    def wrong_outputs(self, recipe: Recipe, setting: Setting) -> Iterator[Wrong]:
        """Compile and run a recipe, and yield its wrong outputs.

        Raises:
            SartorError: if the recipe does not compile or run.
        """
        forced = None if recipe.plan.unsplit else forced_by(recipe)
        feeds = self.samples
        expected = self.expected(narrow=setting.precision is not Precision.F32)
        outputs = self._run(recipe, setting, [*feeds, feeds[0]])
        for name, message in differences(self.output_names, outputs, [*expected, expected[0]], self.bound(setting)):
            yield Wrong(name, message, forced)

    def recipe(self, forced: Forced | None, setting: Setting) -> Recipe:
        """Return the recipe of a plan; None is the unsplit model, compiled by IREE."""
        return (
            unsplit_recipe(self.imported, setting.config.planning)
            if forced is None
            else self.forcer(setting).given(forced)
        )

    @cached_property
    def _tie_spread(self) -> float:
        """What ties move outputs by; the import stops to measure that where layers would decide."""
        known = self.imported.tie_spread
        if known < MOST_BY_ITSELF:
            return known
        return max(known, tie_spread(self.imported.prepared, [*self._samples.since(0)], math.inf))

    def bound(self, setting: Setting) -> Bound:
        """Largest allowed errors of outputs."""
        usual = setting.precision.usual_error
        skeleton = ModelProto.FromString(self.imported.skeleton)
        # A compilation would compare layers beyond its bound; here only outputs are compared.
        allowed = max(tolerance(skeleton, usual), _OTHER_SAMPLES * self._tie_spread)
        allowed = max(allowed, _HALF_PRECISION) if has_half_precision(skeleton) else allowed
        return Bound(allowed, _ROUNDED.get(setting.precision))

    def _ranged(self, setting: Setting) -> ImportedModel:
        """Return the model, with ranges of all values if the precision allows them in 8-bit integers."""
        imported = self.imported
        if not setting.precision.quantises_values or imported.is_quantised:
            return imported
        tensors = layer_tensors(prepared_model(imported.prepared), imported.graph)
        names = {name for tensor in tensors.values() for name in (*tensor.inputs, *tensor.results) if name is not None}
        kept = [name for name in sorted(names) if name in self._real_tensors()]
        seen = Observed({name: MinMaxObserver() for name in kept}, 0)
        assert isinstance(imported.prepared, Path)
        while seen.done < SAMPLES:
            found = observe(imported.prepared, self._samples, seen, 1, 60.0)
            if isinstance(found, WorkerError):
                raise found.error
            seen = found
        forms = {name: QuantisedRange.of(*observer.range()) for name, observer in seen.observers.items()}
        ranges = graph_ranges(imported.graph, tensors, forms)
        return replace(imported, ranges={**ranges.values, **imported.ranges})

    def _real_tensors(self) -> set[str]:
        model = prepared_model(self.imported.prepared)
        known = (*model.graph.value_info, *model.graph.input, *model.graph.output)
        return {each.name for each in known if each.type.tensor_type.elem_type in (1, 10)}

    def expected(self, *, narrow: bool) -> list[Expected]:
        """ONNX Runtime's outputs for each sample."""
        if narrow not in self._known:
            imported = self.imported
            models = (imported.path, imported.prepared)
            reference = Expectation(models, imported.prepared, threads=1, narrow=narrow, optimises=False)
            self._known[narrow] = [reference(feeds) for feeds in self._samples.since(0)]
        return self._known[narrow]

    def _run(self, recipe: Recipe, setting: Setting, feeds: Sequence[Mapping[str, Array]]) -> list[list[Array]]:
        files = NetFiles(self._directory / f"plan{next(self._numbers)}.vmfb", None)
        imported, config = self._ranged(setting), setting.config
        whole = UnsplitNetwork(imported.unsplit)
        net = whole if recipe.plan.unsplit else SplitNetwork(recipe.graph, recipe.variants, imported.ranges)
        try:
            build_net(net, imported.weights, config.target, recipe.manifest(imported, config.header), files)
        except CompileError:
            _check_each(recipe, config.target)
            raise
        signature = net_signature((imported.graph.inputs, imported.graph.outputs))
        device = open_device("cpu", setting.threads)
        with Session(files.module, device=device, signature=signature, huge_pages=False) as session:
            found = [[each.copy() for each in session.run(None, dict(each))] for each in feeds]
        files.module.unlink()
        return found


def _check_each(recipe: Recipe, target: Target) -> None:
    """Lower each variant alone, because a message of the compiler does not name the layer.

    Raises:
        CompileError: for the first layer that does not lower, with its name and variant.
    """
    for layer, variant in sorted(recipe.variants.items()):
        try:
            lower({"alone": variant.implementation}, target)
        except CompileError as error:
            raise CompileError(f"'{layer}' by {without_parameters(variant.descriptor)}: {error}") from None


@dataclass(frozen=True)
class Bound:
    """Largest allowed error of outputs: the cosine distance if it is given, otherwise the relative error."""

    relative: float
    cosine: float | None

    def excess(self, output: Array, expected: Array, scale: Array) -> str:
        """Return a message if the output's error exceeds the bound, otherwise an empty string."""
        if self.cosine is None:
            error, allowed, kind = output_error(output, expected, scale=scale), self.relative, "relative"
        elif output.size == 1:
            # A single number has no direction, and may be rounded to nothing beside larger ones in its layer.
            error, allowed, kind = output_error(output, expected, scale=scale), 1.0, "relative"
        else:
            error, allowed, kind = cosine_distance(output, expected, scale), self.cosine, "cosine"
        return "" if error <= allowed else f"{kind} error {error:.3g}, allowed is {allowed:.2g}"


def differences(
    names: Sequence[str], outputs: Sequence[Sequence[Array]], expected: Sequence[Expected], bound: Bound
) -> Iterator[tuple[str, str]]:
    """Yield the name of each output that is wrong in any run, with the message of the first such run."""
    for index, name in enumerate(names):
        for run, (found, right) in enumerate(zip(outputs, expected, strict=True)):
            excess = bound.excess(found[index], right.outputs[index], right.scales[index])
            if excess:
                yield name, f"{excess} (run {run})"
                break
