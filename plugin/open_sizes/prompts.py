"""Further plans of a decoder, for parts of a prompt: one file has them and that for tokens, and all keep the caches."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from onnx import helper

from sartor.codegen.ir.packing import Packing
from sartor.config import CompileConfig
from sartor.errors import SartorError
from sartor.frontend.imported_model import ImportedModel
from sartor.frontend.states import cache_pairs
from sartor.onnx_model.reading.load import read_model
from sartor.onnx_model.states.call_sizes import inputs_of, is_mask
from sartor.onnx_model.states.cut_caches import CutModel
from sartor.open_sizes.importing import OpenImport
from sartor.open_sizes.plans import best_checked
from sartor.open_sizes.sized_nets import SizedNets
from sartor.profiling.builder import Build
from sartor.profiling.compilation.bench import Bench
from sartor.profiling.compilation.tuned_network import Tuned
from sartor.profiling.refinement import Refined
from sartor.reference.trusted.reference_model import ReferenceModel
from sartor.runtime.driver.bound_input import bound_feeds
from sartor.runtime.driver.cache import PROMPT_SUFFIX, Prompt
from sartor.runtime.driver.signature import Array
from sartor.runtime.manifest import PARTS_FORMAT, Manifest
from sartor.runtime.output_error import relative_error
from sartor.runtime.runs.part_sizes import PartSizes
from sartor.tuning.networks.build_job import NetFiles, SplitNetwork
from sartor.tuning.networks.profile_job import NetRun
from sartor.tuning.networks.prompts_job import WeightedNetwork, build_prompts, calls_of
from sartor.tuning.workers.calls import call
from sartor.tuning.workers.protocol import WorkerError

_TIMEOUT = 1800.0
# A model that sees later tokens is further off by far; sums in another order are not.
_SAME = 1e-2

Content = tuple[str, tuple[int, ...], bytes]
"""An array's element type, shape, and a hash of its numbers."""


@dataclass(frozen=True)
class CheckedPlan:
    """A plan that is right in a file of its own.

    Attributes:
        imported: the model that it is for.
        refined: the plan.
        runner: ran it, on both sides of sizes at which it changes its code as well.
    """

    imported: ImportedModel
    refined: Refined
    runner: SizedNets

    @staticmethod
    def of(tuned: Tuned, runner: SizedNets, opened: OpenImport, config: CompileConfig, bench: Bench) -> CheckedPlan:
        """The best plan whose module is right.

        Raises:
            CompileError: if none is.
        """
        refined, _, judge = best_checked(tuned, runner, opened, config, bench)
        return CheckedPlan(opened.model, refined, judge)

    @property
    def tokens(self) -> int:
        """Tokens of a call: rows that it adds to a cache."""
        rows = {value.name: value.type.shape[0] for value in self.imported.graph.outputs}
        return rows[self.imported.caches[0].output]

    def forms(self, other: ImportedModel) -> dict[str, Packing]:
        """The forms in which the plan reads weights that another model has, too, by their names there."""
        recipe, weights = self.refined.recipe, self.imported.weights
        own = dict[Content, Packing]()
        for layer in recipe.graph.layers:
            packings = recipe.variants[layer.name].implementation.packings
            for name, packing in zip(layer.weights, packings, strict=True):
                own.setdefault(_content(weights[name]), packing)
        names = dict.fromkeys(name for layer in other.graph.layers for name in layer.weights)
        packings_of = {name: own.get(_content(other.weights[name])) for name in names}
        return {name: packing for name, packing in packings_of.items() if packing is not None}

    @property
    def _weighted(self) -> WeightedNetwork:
        recipe, imported = self.refined.recipe, self.imported
        net = SplitNetwork(recipe.graph, recipe.variants, imported.ranges, caches=cache_pairs(imported))
        return WeightedNetwork(net, imported.weights, self.refined.plan.measured)

    def worthwhile(self, parts: Sequence[CheckedPlan], ratio: float) -> list[CheckedPlan]:
        """Those of plans for parts of prompts, of more and more tokens, without which a prompt of as many would take
        longer: with each it takes at most ``ratio`` of the time. The last is always one."""
        calls = {plan.tokens: self._calls(plan) for plan in parts}
        for plan in reversed(parts[:-1]):
            others = {tokens: taken for tokens, taken in calls.items() if tokens != plan.tokens}
            if calls[plan.tokens] > ratio * PartSizes(others).calls(plan.tokens):
                calls = others
        return [plan for plan in parts if plan.tokens in calls]

    def _calls(self, part: CheckedPlan) -> float:
        """How many calls of this plan, for tokens, take as long as one for a part."""
        prompt = Prompt(part.tokens, (), (), {})
        return calls_of(prompt, (self.refined.plan.measured, part.refined.plan.measured))

    def joined(self, prompts: Sequence[CheckedPlan], config: CompileConfig, bench: Bench) -> NetFiles:
        """The file with this plan, for tokens, and those for prompts, of more and more tokens.

        Raises:
            CompileError: with IREE's diagnostic.
        """
        name = bench.directory / "joined"
        weights = None if config.external_weights is None else name.with_suffix(".irpa")
        files = NetFiles(name.with_suffix(".vmfb"), weights)
        arguments = {
            "tokens": self._weighted,
            "prompts": [plan._weighted for plan in prompts],
            "target": config.target,
            "manifest": self._manifest(prompts, config),
            "files": files,
        }
        bench.progress("compiling plans into one file", 0, 1)
        size = call(bench.pool, build_prompts, arguments, "compiling plans into one file", _TIMEOUT)
        bench.progress("compiling plans into one file", 1, 1)
        return replace(files, weight_bytes=size)

    def _manifest(self, prompts: Sequence[CheckedPlan], config: CompileConfig) -> Manifest:
        own, *others = (
            Manifest.from_json(plan.refined.recipe.manifest(plan.imported, config.header)) for plan in (self, *prompts)
        )
        features = tuple(sorted({*own.features, *(name for other in others for name in other.features)}))
        parts = tuple(self._prompt(part, other, prompts[-1]) for part, other in zip(prompts, others, strict=True))
        newest = max(own.format, *(other.format for other in others), PARTS_FORMAT)
        return replace(own, features=features, prompts=parts, format=newest)

    @staticmethod
    def _prompt(plan: CheckedPlan, manifest: Manifest, longest: CheckedPlan) -> Prompt:
        """A plan as the manifest of the file tells of it."""
        signature = manifest.stateful_signature
        suffix = PROMPT_SUFFIX if plan is longest else f"{PROMPT_SUFFIX}{plan.tokens}"
        return Prompt(plan.tokens, signature.inputs, signature.outputs, manifest.plan, suffix=suffix)


def _content(array: Array) -> Content:
    """What tells an array from others."""
    held = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return array.dtype.str, array.shape, hashlib.sha256(held.data).digest()


def judged_file(plan: CheckedPlan, further: Sequence[CheckedPlan], files: NetFiles) -> NetRun:
    """The judged run of a file with further plans."""
    runner = plan.runner
    for other in further:
        runner = runner.accepting(other.runner.budget)
    return runner.judged(Build(plan.refined.recipe, files))


def sees_no_later_tokens(path: Path, cut: CutModel) -> bool | WorkerError:
    """Worker side: whether a model gives for several tokens what it gives for one after another.

    Args:
        path: the user's file.
        cut: what it is without its caches, with the shapes of a prompt.
    """
    try:
        return _Causality(path, cut).holds()
    except SartorError as error:
        return WorkerError(error)


class _Causality:
    def __init__(self, path: Path, cut: CutModel) -> None:
        model, _ = read_model(path)
        self._cut, self._reference = cut, ReferenceModel(path)
        self._types = {
            value.name: helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type) for value in inputs_of(model)
        }
        self._masks = {
            value.name: len(value.type.tensor_type.shape.dim) for value in inputs_of(model) if is_mask(value.name)
        }
        self._empty = {cache.input: self._cache(cache.input, cache.axis) for cache in cut.caches}
        self._shapes = {
            name: shape for name, shape in cut.prompts[0].items() if name in self._types and name not in self._empty
        }

    @property
    def _batch(self) -> int:
        return next(size for shape in self._shapes.values() for size in shape[:1] if isinstance(size, int))

    def _cache(self, name: str, axis: int) -> Array:
        """A cache without positions."""
        known = [size for size in self._cut.shapes[name] if isinstance(size, int)]
        return np.zeros((*known[:axis], 0, *known[axis:]), self._types[name])

    def holds(self) -> bool:
        count = max(size for shape in self._shapes.values() for size in shape[1:] if isinstance(size, int))
        whole = self._run(range(count), self._empty)
        held, parts = self._empty, list[Mapping[str, Array]]()
        for place in range(count):
            parts.append(self._run(range(place, place + 1), held))
            held = {cache.input: parts[-1][cache.output] for cache in self._cut.caches}
        axes = {cache.output: cache.axis for cache in self._cut.caches}
        for name, array in whole.items():
            one = parts[-1][name] if name in axes else _joined([part[name] for part in parts], array)
            if not relative_error([array], [one]) <= _SAME:
                return False
        return True

    def _run(self, places: range, held: Mapping[str, Array]) -> dict[str, Array]:
        count, feeds = len(places), {**bound_feeds(self._cut.fixed), **held}
        for name in self._shapes:
            # Different tokens, which all vocabularies have.
            numbers = [place if "position" in name else place * place % 3 for place in places]
            feeds[name] = np.broadcast_to(np.array(numbers, self._types[name]), (self._batch, count)).copy()
        for name, rank in self._masks.items():
            feeds[name] = np.ones((*[self._batch] * (rank - 1), places.stop), self._types[name])
        known = {name: array for name, array in feeds.items() if name in self._reference.input_names}
        return dict(zip(self._reference.output_names, self._reference(known), strict=True))


def _joined(parts: list[Array], like: Array) -> Array:
    """What calls of one token gave, as one call gives it."""
    axes = [axis for axis, (one, size) in enumerate(zip(parts[0].shape, like.shape, strict=True)) if one != size]
    return np.concatenate(parts, axes[0]) if axes else parts[-1]
