"""Worker side: models with an open dimension, compiled once and compared with ONNX Runtime at several sizes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from onnx import ModelProto

from sartor.codegen.ir.sizes.dims import Symbol
from sartor.codegen.ir.sizes.fit import Fit
from sartor.open_sizes.importing import opened_graph
from sartor.planning.recipe import Recipe
from sartor.policies import Precision
from sartor.tuning.workers.protocol import WorkerError
from tools.fuzz.forced_plans import forced_by
from tools.fuzz.models import SYMBOL
from tools.fuzz.trial import Setting, Subject, Wrong, differences

# Beyond the size that a model was drawn with, as no size in it should tell the largest one.
_BEYOND = 12


def subject_of(model: ModelProto, architecture: str, directory: Path) -> Subject:
    """A model that is compiled with different plans, for any size if one of its dimensions is open.

    Raises:
        SartorError: if the model cannot be imported; an ``UnsupportedModelError`` if it is not computed alike for all
            sizes.
    """
    is_open = any(SYMBOL in dims for dims in _dims(model).values())
    return (OpenSubject if is_open else Subject)(model, architecture, directory)


class OpenSubject(Subject):
    """A model with an open dimension."""

    def __init__(self, model: ModelProto, architecture: str, directory: Path) -> None:
        dims = _dims(model)
        symbol = Symbol(SYMBOL, 1, drawn_size(model) + _BEYOND)
        fits = Fit.of([symbol]), Fit.of_small([symbol])
        twin, small = (fit.twin[0] for fit in fits)

        def at(size: int) -> Subject:
            folder = directory / str(size)
            folder.mkdir()
            shapes = {name: tuple(size if dim == SYMBOL else int(dim) for dim in given) for name, given in dims.items()}
            return Subject(model, architecture, folder, shapes)

        first, *imported = (at(size) for size in (symbol.most, twin, small))
        networks = [(each.imported.graph, each.imported.weights) for each in (first, *imported)]
        opened = opened_graph(networks, fits, directory / "opened.bin")
        if isinstance(opened, WorkerError):
            raise opened.error
        graph, weights, _ = opened
        # Neighbours of the size that was drawn, and one.
        others = [at(size) for size in dict.fromkeys((1, 2, drawn_size(model))) if size not in (twin, small)]
        self._sized = (first, *imported, *others)
        super().__init__(model, architecture, directory, imported=replace(first.imported, graph=graph, weights=weights))

    def wrong_outputs(self, recipe: Recipe, setting: Setting) -> Iterator[Wrong]:
        """As of ``Subject``, at several sizes in turn, and at the first ones once more."""
        feeds = [(subject, sample) for subject in (*self._sized, self._sized[0]) for sample in subject.samples]
        outputs = self._run(recipe, setting, [sample for _, sample in feeds])
        rest = iter(outputs)
        forced = forced_by(recipe)
        for subject in (*self._sized, self._sized[0]):
            own = [next(rest) for _ in subject.samples]
            expected = subject.expected(narrow=setting.precision is not Precision.F32)
            for name, message in differences(self.output_names, own, expected, subject.bound(setting)):
                yield Wrong(name, message, forced)


def _dims(model: ModelProto) -> Mapping[str, tuple[int | str, ...]]:
    constants = {tensor.name for tensor in model.graph.initializer}
    return {
        value.name: tuple(dim.dim_param or dim.dim_value for dim in value.type.tensor_type.shape.dim)
        for value in model.graph.input
        if value.name not in constants
    }


def drawn_size(model: ModelProto) -> int:
    """The size that the open dimension was drawn with."""
    return int(next(each.value for each in model.metadata_props if each.key == SYMBOL))
