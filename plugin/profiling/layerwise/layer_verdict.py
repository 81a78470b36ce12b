"""The verdict on a network by its layers, where the error of its outputs is more than a bound allows.

A network that rounds to integers, or to half precision, may amplify a rounding without limit. Its layers do not: each
is compared with the user's nodes on the values that the network itself gave before it.
"""

from __future__ import annotations

import shutil
from collections import ChainMap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from sartor.codegen.ir.layer import NetworkValue
from sartor.errors import CompileError, DeviceError, DisturbedError, UnsupportedModelError, UsageError
from sartor.frontend.imported_model import ImportedModel
from sartor.planning.recipe import Recipe
from sartor.policies import ModuleHeader
from sartor.profiling.builder import Builder
from sartor.profiling.layerwise.check_job import check_layers, tensors_of
from sartor.profiling.layerwise.instrumented import Shown, chunks, instrumented, output_claims, shown_results
from sartor.progress import Progress, silent
from sartor.reference.layerwise.layer_check import CheckedLayers, WrongTensor
from sartor.runtime.driver.signature import Array
from sartor.tuning.networks.net_files import NetFiles
from sartor.tuning.networks.sample_runs import run_samples
from sartor.tuning.workers.calls import call
from sartor.tuning.workers.pool import WorkerPool
from sartor.tuning.workers.shared_arrays import StoredArrays

_STEP = "comparing layers"
_FOLDER = "layerwise"


@dataclass(frozen=True)
class LayerVerdict:
    """What comparing the layers of a network says of it.

    Attributes:
        compared: number of layers whose results were compared.
        together: number of other layers, which were compared together with those that read them.
        ties: number of elements that were rounded to the other side of a tie, in all samples.
        wrong: the first tensor that is wrong, in the order of the user's file; None if all are right.
        rounds: whether the model rounds to integers.
        reason: why nothing was compared, or the compared build does not stand for the network; empty if it does.
    """

    compared: int = 0
    together: int = 0
    ties: int = 0
    wrong: WrongTensor | None = None
    rounds: bool = True
    reason: str = ""

    @property
    def is_right(self) -> bool:
        """Whether all layers are right."""
        return self.wrong is None and not self.reason

    @property
    def sentence(self) -> str:
        """The verdict for users."""
        if self.reason:
            return f"its layers were not compared: {self.reason}"
        if self.wrong is not None:
            each = self.wrong
            layer = f"layer '{each.layer}' ({each.node})" if each.layer else f"output '{each.tensor}' ({each.node})"
            return f"{layer} is wrong: {each.wrong} of {each.size} values differ by more than rounding allows"
        beside = f", {self.together} of them together with the next" if self.together else ""
        layers = f"each of {self.compared + self.together} layers is"
        if not self.rounds:
            return f"{layers} right within the rounding of its type{beside}"
        return f"{layers} exact{beside}; ties that differ: {self.ties}"


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
    """

    imported: ImportedModel
    pool: WorkerPool
    directory: Path
    header: ModuleHeader
    device: str
    threads: int
    progress: Progress = silent

    def verdict(self, recipe: Recipe, files: NetFiles, samples: Sequence[Mapping[str, Array]]) -> LayerVerdict:
        """The verdict on a network, whose files and recipe are given, by some samples.

        Raises:
            DisturbedError: if a worker was disturbed.
        """
        if recipe.plan.unsplit:
            return LayerVerdict(reason="stock IREE compiled the model whole")
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
        path = self.imported.path.absolute()
        shown = shown_results(self.imported, recipe, call(self.pool, tensors_of, {"path": path}, _STEP))
        outputs = [each.name for each in recipe.graph.outputs]
        run = partial(self._run, samples=samples)
        shipped = run(files, (recipe.graph.inputs, recipe.graph.outputs))
        # Arrays in files stay there until a worker maps them.
        given = [ChainMap[str, Array](dict(zip(outputs, each, strict=True))) for each in shipped]
        groups = chunks(recipe.graph, shown)
        for number, group in enumerate(groups):
            self.progress(_STEP, number, len(groups))
            found = self._shown(recipe, group, samples, folder / str(number))
            if not all(_are_same(each[: len(outputs)], right) for each, right in zip(found, shipped, strict=True)):
                return LayerVerdict(
                    reason="linked with further outputs, the same layers give other bits: what links them is wrong"
                )
            for index, each in enumerate(found):
                names = [one.tensor for one in group]
                path_of = folder / f"{number}-{index}.bin"
                stored = StoredArrays.write(path_of, dict(zip(names, each[len(outputs) :], strict=True)))
                given[index].maps.append(stored)  # type: ignore[arg-type] # which is read only
        self.progress(_STEP, len(groups), len(groups))
        job = {
            "path": path,
            "claims": {**{each.tensor: each.claim for each in shown}, **output_claims(recipe)},
            "inferences": list(zip(samples, given, strict=True)),
            "bound": self.imported.bound,
        }
        verdict = _summed(recipe, call(self.pool, check_layers, job, _STEP))
        return replace(verdict, rounds=self.imported.is_rounding)

    def _shown(
        self, recipe: Recipe, group: list[Shown], samples: Sequence[Mapping[str, Array]], folder: Path
    ) -> list[Sequence[Array]]:
        """The outputs of an instrumented network on each sample: the network's own, then results of layers."""
        folder.mkdir()
        imported, wider = instrumented(self.imported, recipe, group)
        (built,) = Builder(imported, self.pool, folder, self.header, silent).build([wider])
        return self._run(built.files, (wider.graph.inputs, wider.graph.outputs), samples)

    def _run(
        self,
        files: NetFiles,
        values: tuple[tuple[NetworkValue, ...], tuple[NetworkValue, ...]],
        samples: Sequence[Mapping[str, Array]],
    ) -> list[Sequence[Array]]:
        job = {"files": files, "values": values, "feeds": samples, "device": self.device, "threads": self.threads}
        return [each.outputs for each in call(self.pool, run_samples, job, _STEP, quiet=True)]


def _are_same(found: Sequence[Array], right: Sequence[Array]) -> bool:
    """Whether outputs have the same bits."""
    return all(
        each.dtype == other.dtype and each.shape == other.shape and each.tobytes() == other.tobytes()
        for each, other in zip(found, right, strict=True)
    )


def _summed(recipe: Recipe, found: CheckedLayers) -> LayerVerdict:
    compared = len([each for each in recipe.graph.layers if each.name in {*found.layers}])
    wrong = found.wrong[0] if found.wrong else None
    return LayerVerdict(compared, len(recipe.graph.layers) - compared, found.ties, wrong)
