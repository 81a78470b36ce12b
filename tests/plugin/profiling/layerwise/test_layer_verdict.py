"""Modules of networks that amplify rounding are judged by their layers: honest ties pass, and planted faults do not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import onnx
import pytest

from sartor.config import CompileConfig
from sartor.costing.candidates import find_candidates
from sartor.errors import RewriteError
from sartor.frontend.imported_model import ImportedModel
from sartor.planning.guessed_recipe import guessed_recipe
from sartor.planning.recipe import Recipe
from sartor.profiling.builder import Builder
from sartor.profiling.layerwise.instrumented import chunks, shown_results
from sartor.profiling.layerwise.layer_verdict import LayerJudge
from sartor.profiling.layerwise.verdict import LayerVerdict
from sartor.progress import silent
from sartor.tuning.networks.net_files import NetFiles
from sartor.tuning.selection.problem.pin import Pin
from sartor.tuning.workers.pool import WorkerPool
from tests.importing import imported_model
from tests.plugin.amplifying_networks import image, quantised
from tests.plugin.planted_faults import FAULTS, copy_of

IN_WEIGHTS = ("channel's scale", "swapped channels")
SAMPLES = [{"x": image(seed)} for seed in (21, 29)]
# Of each network two layers that follow on others; integers are multiplied where there are routines for it.
PLANTED = [
    ("residual", "b1", "zero point"),
    ("residual", "a2", "channel's scale"),
    ("residual", "b3", "swapped channels"),
    ("inverted", "d1", "channel's scale"),
    ("inverted", "d0", "dropped pair"),
    ("inverted", "e1", "saturating sums"),
]


@dataclass
class Setting:
    """Where modules are built."""

    pool: WorkerPool
    folder: Path
    builds: int = 0
    right: dict[str, bytes | Path] = field(default_factory=dict)

    def built(self, imported: ImportedModel, recipe: Recipe) -> NetFiles:
        self.builds += 1
        own = self.folder / f"build{self.builds}"
        own.mkdir()
        (build,) = Builder(imported, self.pool, own, _config().header, silent).build([recipe])
        return build.files

    def prepared(self, name: str, path: Path) -> bytes | Path:
        """The rewritten model of a right network."""
        if name not in self.right:
            self.right[name] = _imported(path)[0].prepared
        return self.right[name]

    def verdict(self, imported: ImportedModel, recipe: Recipe, files: NetFiles) -> LayerVerdict:
        judge = LayerJudge(imported, self.pool, self.folder, _config().header, "cpu", 1)
        return judge.verdict(recipe, files, SAMPLES)


def _config(pins: dict[str, str] | None = None) -> CompileConfig:
    listed = tuple(Pin(name, routines) for name, routines in (pins or {}).items())
    return CompileConfig(threads=1, jobs=1, pins=listed)


@pytest.fixture(scope="module")
def setting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Setting]:
    with WorkerPool(2) as pool:
        yield Setting(pool, tmp_path_factory.mktemp("modules"))


def _imported(path: Path, pins: dict[str, str] | None = None) -> tuple[ImportedModel, Recipe]:
    """A model with the variants that are expected to be fastest, none of which was measured."""
    imported = imported_model(path)
    policy = _config(pins).planning
    return imported, guessed_recipe(imported, find_candidates(imported, policy, everything=False).variants, policy)


@pytest.mark.parametrize("layout", ["qdq", "qoperator"])
@pytest.mark.parametrize("name", ["residual", "inverted"])
def test_honest_modules_are_right_by_their_layers(name: str, layout: str, setting: Setting, tmp_path: Path) -> None:
    imported, recipe = _imported(quantised(name, tmp_path, layout))
    found = setting.verdict(imported, recipe, setting.built(imported, recipe))
    assert found.is_right, found.sentence
    assert found.compared >= 0.8 * len(recipe.graph.layers)
    assert found.sentence.startswith(f"each of {len(recipe.graph.layers)} layers is exact")


@pytest.mark.parametrize(("name", "layer", "fault"), PLANTED)
def test_planted_faults_are_seen(name: str, layer: str, fault: str, setting: Setting, tmp_path: Path) -> None:
    """A module of a faulty model is judged by the right one, as if the front end had planted the fault."""
    path = quantised(name, tmp_path)
    wrong = copy_of(onnx.load(path))
    FAULTS[fault](wrong, layer)
    onnx.save(wrong, tmp_path / "wrong.onnx")
    imported, recipe = _imported(tmp_path / "wrong.onnx")
    files = setting.built(imported, recipe)
    with pytest.raises(RewriteError, match=r"rewritten model differs from its definition at .* by more than rounding"):
        setting.verdict(replace(imported, path=path), recipe, files)
    if fault in IN_WEIGHTS:
        # Where the rewritten model is right, only a kernel can be wrong.
        kernel = replace(imported, path=path, prepared=setting.prepared(name, path))
        found = setting.verdict(kernel, recipe, files)
        assert found.wrong is not None, found.reason
        assert not found.is_right
        assert "differ by more than rounding allows" in found.sentence
        assert found.advice.endswith("=*.stock'")


def test_a_wrong_edge_is_seen(setting: Setting, tmp_path: Path) -> None:
    imported, recipe = _imported(quantised("residual", tmp_path))
    layers = list(recipe.graph.layers)
    # A residual sum reads the shortcut of the block before.
    sums = [index for index, layer in enumerate(layers) if len(layer.inputs) == 2]
    first, later = sums[1], sums[2]
    shortcut = next(ref for ref in layers[later].inputs if ref.source == layers[first].name)
    other = next(ref for ref in layers[first].inputs if ref != shortcut)
    edges = tuple(other if ref == shortcut else ref for ref in layers[later].inputs)
    layers[later] = replace(layers[later], inputs=edges)
    graph = replace(recipe.graph, layers=tuple(layers))
    wrong, model = replace(recipe, graph=graph), replace(imported, graph=graph)
    found = setting.verdict(replace(model, names=imported.names), wrong, setting.built(model, wrong))
    assert not found.is_right


def test_a_file_of_other_code_is_not_vouched_for(setting: Setting, tmp_path: Path) -> None:
    """As of one whose memory was reused too early: the same layers, linked again, have other bits."""
    path = quantised("inverted", tmp_path)
    wrong = copy_of(onnx.load(path))
    FAULTS["channel's scale"](wrong, "p2")
    onnx.save(wrong, tmp_path / "wrong.onnx")
    files = setting.built(*_imported(tmp_path / "wrong.onnx"))
    imported, recipe = _imported(path)
    found = setting.verdict(imported, recipe, files)
    assert not found.is_right
    assert found.is_mislinked
    assert "what links them is wrong" in found.sentence


def test_results_are_shown_in_parts(tmp_path: Path) -> None:
    imported, recipe = _imported(quantised("inverted", tmp_path))
    names = {name for node in onnx.load(imported.path).graph.node for name in node.output}
    shown = shown_results(imported, recipe, names)
    parts = chunks(recipe.graph, shown, 1 << 16)
    assert len(parts) > 1
    assert [each for part in parts for each in part] == shown
    assert chunks(recipe.graph, shown) == [shown]


def test_of_a_model_that_iree_compiles_whole_the_rewritten_layers_are_compared(
    setting: Setting, tmp_path: Path
) -> None:
    imported, recipe = _imported(quantised("residual", tmp_path))
    whole = replace(recipe, plan=replace(recipe.plan, unsplit=True))
    found = setting.verdict(imported, whole, NetFiles(tmp_path / "none.vmfb", None))
    assert found.is_right
    layers = f"in the rewritten model each of {len(imported.graph.layers)} layers is exact"
    assert found.sentence.startswith(f"stock IREE compiled the model whole; {layers}")
