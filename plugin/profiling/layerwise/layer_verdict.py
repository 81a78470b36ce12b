"""Judges a network by its layers: each is compared with the user's nodes on the values that the network gave before it.

A network that rounds to integers, or to half precision, may amplify a rounding without limit, or hide what a layer does
wrong. Its layers do neither. What is wrong is the fault of a kernel, or of a rewrite: the rewritten model is then
computed by the reference in place of the module, and its layers are compared likewise.
"""

from __future__ import annotations

import hashlib
import itertools
import shutil
from collections import ChainMap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np

from sartor.codegen.ir.graph import LayerGraph
from sartor.codegen.ir.layer import NetworkValue
from sartor.errors import CompileError, DeviceError, DisturbedError, UnsupportedModelError, UsageError
from sartor.frontend.imported_model import ImportedModel
from sartor.planning.recipe import Recipe
from sartor.policies import ModuleHeader
from sartor.profiling.builder import Build, Builder
from sartor.profiling.layerwise.check_job import check_layers, tensors_of
from sartor.profiling.layerwise.instrumented import (
    Shown,
    chunks,
    instrumented,
    output_claims,
    shown_results,
)
from sartor.profiling.layerwise.rewritten_layers import checked_layers
from sartor.profiling.layerwise.verdict import LayerVerdict
from sartor.progress import Progress, silent
from sartor.reference.layerwise.layer_check import CheckedLayers, WrongTensor
from sartor.runtime.driver.counts import shown_outputs
from sartor.runtime.driver.signature import Array
from sartor.tuning.networks.net_files import NetFiles
from sartor.tuning.networks.sample_runs import run_samples
from sartor.tuning.records.signature import net_signature
from sartor.tuning.workers.calls import call, call_each
from sartor.tuning.workers.pool import WorkerPool
from sartor.tuning.workers.shared_arrays import StoredArrays

_STEP = "comparing layers"
_FOLDER = "layerwise"


@dataclass(frozen=True)
class LayerJudge:
    """Compares layers of networks of one model.

    Attributes:
        imported: the model.
        pool: workers.
        directory: for temporary files.
        header: of modules.
        device: on which networks run.
        threads: of that device.
        progress: told about every build.
        known: verdicts by what they depend on, as a file with two plans has the layers of two files.
        suspects: wrong tensors of modules where nobody can tell whether a kernel or a rewrite is wrong.
    """

    imported: ImportedModel
    pool: WorkerPool
    directory: Path
    header: ModuleHeader
    device: str
    threads: int
    progress: Progress = silent
    known: dict[str, LayerVerdict] = field(default_factory=dict)
    suspects: list[WrongTensor] = field(default_factory=list)

    def verdict(self, recipe: Recipe, files: NetFiles, samples: Sequence[Mapping[str, Array]]) -> LayerVerdict:
        """The verdict on a network, whose files and recipe are given, by some samples.

        A model that IREE compiles whole has no layers: those of the rewritten model are compared. Where a layer of a
        module is wrong and those of the rewritten model cannot be compared, a rewrite may be wrong: then only modules
        are right whose own layers are.

        Raises:
            DisturbedError: if a worker was disturbed.
            RewriteError: if the rewritten model is wrong, whatever was compiled of it.
        """
        if recipe.plan.unsplit:
            return self._suspected(self.rewritten(self.imported.graph, samples, "stock IREE compiled the model whole"))
        verdict = self._of_module(recipe, files, samples)
        if verdict.wrong is not None and self.rewritten(recipe.graph, samples, "").reason:
            self.suspects.append(verdict.wrong)
        return self._suspected(verdict)

    def _suspected(self, verdict: LayerVerdict) -> LayerVerdict:
        """A verdict with what another module did wrong, where nothing was compared."""
        return replace(verdict, suspect=self.suspects[0]) if verdict.reason and self.suspects else verdict

    def rewritten(self, graph: LayerGraph, samples: Sequence[Mapping[str, Array]], instead: str) -> LayerVerdict:
        """The verdict on the rewritten model by the results of some layers; ``instead`` as in the verdict.

        Raises:
            DisturbedError: if a worker was disturbed.
            RewriteError: if it is wrong.
        """
        try:
            layers = checked_layers(self.pool, self.imported, graph, samples)
        except DisturbedError:
            raise
        except (CompileError, UnsupportedModelError, UsageError) as error:
            return LayerVerdict(reason=str(error))
        return replace(self._summed(graph, layers), instead=instead)

    def _of_module(self, recipe: Recipe, files: NetFiles, samples: Sequence[Mapping[str, Array]]) -> LayerVerdict:
        folder = self.directory / _FOLDER
        folder.mkdir()
        try:
            return self._verdict(recipe, files, samples, folder)
        except DisturbedError:
            raise
        except (CompileError, DeviceError, UnsupportedModelError, UsageError) as error:
            return LayerVerdict(reason=str(error))
        finally:
            shutil.rmtree(folder)

    def _verdict(
        self, recipe: Recipe, files: NetFiles, samples: Sequence[Mapping[str, Array]], folder: Path
    ) -> LayerVerdict:
        run = partial(self._run, files, (recipe.graph.inputs, recipe.graph.outputs), samples)
        shipped = run()
        key = _key(recipe, samples, shipped)
        if key not in self.known:
            verdict = self._compared(recipe, samples, shipped, folder)
            if verdict.is_mislinked and not all(map(_are_same, run(), shipped)):
                return LayerVerdict(reason="its outputs differ from run to run")
            self.known[key] = verdict
        return self.known[key]

    def _compared(
        self,
        recipe: Recipe,
        samples: Sequence[Mapping[str, Array]],
        shipped: Sequence[Sequence[Array]],
        folder: Path,
    ) -> LayerVerdict:
        path = self.imported.path.absolute()
        shown = shown_results(self.imported, recipe, call(self.pool, tensors_of, {"path": path}, _STEP))
        # A session returns no counts of elements.
        specs = net_signature((recipe.graph.inputs, recipe.graph.outputs)).outputs
        outputs = [spec.name for spec in shown_outputs(specs)]
        # Arrays in files stay there until a worker maps them.
        given = [ChainMap[str, Array](dict(zip(outputs, arrays, strict=True))) for arrays in shipped]
        groups = chunks(recipe.graph, shown)
        self.progress(_STEP, 0, len(groups))
        for number, (group, build) in enumerate(zip(groups, self._built(recipe, groups, folder), strict=True)):
            run = self._run(build.files, (build.recipe.graph.inputs, build.recipe.graph.outputs), samples)
            build.files.module.unlink()
            if not all(_are_same(arrays[: len(outputs)], right) for arrays, right in zip(run, shipped, strict=True)):
                return LayerVerdict(is_mislinked=True)
            for index, arrays in enumerate(run):
                names = [one.tensor for one in group]
                path_of = folder / f"{number}-{index}.bin"
                stored = StoredArrays.write(path_of, dict(zip(names, arrays[len(outputs) :], strict=True)))
                given[index].maps.append(stored)  # type: ignore[arg-type] # which is read only
            self.progress(_STEP, number + 1, len(groups))
        claims = {**{result.tensor: result.claim for result in shown}, **output_claims(recipe, outputs)}
        job = {"path": path, "claims": claims, "bound": self.imported.bound}
        jobs = [{**job, "inferences": [inference]} for inference in zip(samples, given, strict=True)]
        return self._summed(recipe.graph, sum(call_each(self.pool, check_layers, jobs, _STEP), CheckedLayers()))

    def _summed(self, graph: LayerGraph, checked: CheckedLayers) -> LayerVerdict:
        layers = {*checked.layers}
        compared = sum(layer.name in layers for layer in graph.layers)
        wrong = checked.wrong[0] if checked.wrong else None
        return LayerVerdict(
            compared, len(graph.layers) - compared, checked.ties, wrong, rounds=self.imported.is_rounding
        )

    def _built(self, recipe: Recipe, groups: Sequence[list[Shown]], folder: Path) -> list[Build]:
        """An instrumented network for each group, whose outputs are the network's own, then these results of layers."""
        pairs = []
        for number, group in enumerate(groups):
            place = folder / str(number)
            place.mkdir()
            imported, wider = instrumented(self.imported, recipe, group)
            pairs.append((Builder(imported, self.pool, place, self.header, silent), wider))
        return Builder.build_each(pairs, _STEP)

    def _run(
        self,
        files: NetFiles,
        values: tuple[tuple[NetworkValue, ...], tuple[NetworkValue, ...]],
        samples: Sequence[Mapping[str, Array]],
    ) -> list[Sequence[Array]]:
        job = {"files": files, "values": values, "feeds": samples, "device": self.device, "threads": self.threads}
        return [run.outputs for run in call(self.pool, run_samples, job, _STEP, quiet=True)]


def _key(recipe: Recipe, samples: Sequence[Mapping[str, Array]], outputs: Sequence[Sequence[Array]]) -> str:
    """What the verdict on a network depends on, if its outputs on the samples are these."""
    hashed = hashlib.sha256(recipe.digest.encode())
    for array in itertools.chain(*(feeds.values() for feeds in samples), *outputs):
        hashed.update(np.ascontiguousarray(array).data if array.size else b"")
    return hashed.hexdigest()


def _are_same(outputs: Sequence[Array], right: Sequence[Array]) -> bool:
    """Whether outputs have the same bits."""
    return all(
        array.dtype == other.dtype and array.shape == other.shape and array.tobytes() == other.tobytes()
        for array, other in zip(outputs, right, strict=True)
    )
