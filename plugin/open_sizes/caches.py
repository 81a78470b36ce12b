"""Caches that grow: the model without them, or with caches of an open length, is written to a file, which is then
compiled for any number of positions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from onnx import ModelProto, TensorProto, helper

from sartor.errors import SartorError, UnsupportedModelError, UsageError
from sartor.onnx_model.graphs.halves import HALVES, half_types, record_widened
from sartor.onnx_model.graphs.held_data import holding, serialised
from sartor.onnx_model.reading.load import read_model
from sartor.onnx_model.rewrites.number_types.widen_halves import fits_widened, widen_halves
from sartor.onnx_model.states.cache_branch import CHOICE, take_cached_branch
from sartor.onnx_model.states.call_sizes import NO_STATE, has_several
from sartor.onnx_model.states.cut_caches import CutModel, cut_caches, open_caches
from sartor.onnx_model.states.explicit_appends import append_explicitly
from sartor.onnx_model.states.grown_caches import growing_caches
from sartor.onnx_model.states.head_widths import know_widths
from sartor.onnx_model.states.stacked_caches import append_to_stacks
from sartor.policies import StatePolicy
from sartor.runtime.driver.bound_input import BoundInput
from sartor.settings.size_range import OpenShapes
from sartor.tuning.workers.protocol import WorkerError


@dataclass(frozen=True)
class CutFile:
    """The file of a model whose caches were taken out.

    Attributes:
        path: with the name of the user's file.
        cut: what it is.
        external: the files that hold weights outside the user's file.
    """

    path: Path
    cut: CutModel
    external: tuple[Path, ...]


def _widened(model: ModelProto, cut: CutModel) -> CutModel:
    """Compute a model of half precision in float32, as CPUs do, with caches of float32: those of the model's own type
    would be converted whole in each call."""
    if not half_types(model) or not fits_widened(model):
        return cut
    record_widened(model, model)
    dtypes, names = dict[str, str](), {name for cache in cut.caches for name in (cache.input, cache.output)}
    for value in (*model.graph.input, *model.graph.output, *model.graph.value_info):
        kind = value.type.tensor_type
        if value.name in names and kind.elem_type in HALVES:
            dtypes[value.name] = helper.tensor_dtype_to_np_dtype(kind.elem_type).name
            kind.elem_type = TensorProto.FLOAT
    widen_halves(model)
    return replace(cut, dtypes=dtypes)


def _told(fixed: Sequence[BoundInput]) -> Iterator[str]:
    """What is told of inputs that the model no longer has."""
    for bound in fixed:
        name = bound.spec.name
        yield f"{name}=1, as the module keeps the caches" if name == CHOICE else f"'{name}' is not read then"


@dataclass(frozen=True)
class Cutting:
    """A model without its caches, or why callers pass them.

    Attributes:
        file: None if callers pass them.
        reason: empty also if the model has no caches that grow.
    """

    file: CutFile | None = None
    reason: str = ""


def cut_file(
    path: Path, policy: StatePolicy, given: OpenShapes, directory: Path, *, is_chosen: bool = False
) -> Cutting | WorkerError:
    """Worker side: write a model without its caches that grow, if it has any.

    Args:
        path: ONNX file.
        policy: which inputs and outputs are states.
        given: shapes of inputs that the user gives.
        directory: for the file.
        is_chosen: whether the user says which branch of a decoder with two computes calls.
    """
    try:
        with holding():
            model, external = read_model(path)
            outputs, inputs = ([value.name for value in values] for values in (model.graph.output, model.graph.input))
            pairs = [pair for pattern in policy.declared for pair in pattern.pairs(outputs, inputs)]
            declared: Mapping[str, str] = {input: output for output, input in pairs}
            fixed = () if is_chosen else take_cached_branch(model)
            know_widths(model)
            append_to_stacks(model)
            append_explicitly(model, several=has_several(model, given))
            growing = growing_caches(model, declared, finds=policy.finds)
            if not growing:
                return Cutting()
            try:
                cut = cut_caches(model, growing, given)
            except UnsupportedModelError as error:
                if declared:
                    raise
                return Cutting(reason=str(error))
            cut = replace(_widened(model, cut), fixed=fixed, sources=(*cut.sources, *_told(fixed)))
            return Cutting(_written(model, directory / path.name, cut, external))
    except SartorError as error:
        return WorkerError(error)


def open_file(path: Path, given: OpenShapes, directory: Path) -> Cutting | WorkerError:
    """Worker side: write a model whose callers pass the caches with an open number of positions, if it has such.

    Args:
        path: ONNX file.
        given: shapes of inputs that the user gives.
        directory: for the file.
    """
    try:
        with holding():
            model, external = read_model(path)
            know_widths(model)
            append_to_stacks(model)
            append_explicitly(model, several=has_several(model, given))
            growing = growing_caches(model, {}, finds=True)
            # Of a decoder with two branches the user says which one computes calls.
            if not growing or any(value.name == CHOICE for value in model.graph.input):
                return Cutting()
            try:
                cut = open_caches(model, growing, given)
            except (UnsupportedModelError, UsageError) as error:
                return Cutting(reason=str(error).replace(NO_STATE, "give the sizes of all inputs by --shape"))
            return Cutting(_written(model, directory / path.name, cut, external))
    except SartorError as error:
        return WorkerError(error)


def _written(model: ModelProto, target: Path, cut: CutModel, external: tuple[Path, ...]) -> CutFile:
    with target.open("wb") as file:
        for piece in serialised(model):
            file.write(piece)
    return CutFile(target, cut, external)
