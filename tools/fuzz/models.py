"""Random models from seeds, built by inserting operators one by one where they fit (NNSmith, Liu et al. 2023).

Every model passes ONNX's checker with full shape inference, and its outputs in ONNX Runtime are finite.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import onnx
from onnx import ModelProto

from sartor.errors import SartorError
from sartor.reference.random_inputs import sample_inputs
from sartor.reference.trusted.reference_model import ReferenceModel
from tools.fuzz.graph import Graph, UnfitError
from tools.fuzz.operators import elementwise, integers, movement, products, quantised, reductions, windows

Step = Callable[[Graph], None]

SYMBOL = "n"
"""Name of an open dimension."""
OPSETS = (17, 18, 19, 20, 21)
# Numbers of steps to draw from. Most of the time goes into compiling layers, and few layers meet most defects.
_STEP_COUNTS = (1, 1, 2, 2, 2, 3, 3, 4, 6)
_TRIES_PER_STEP = 6
_FIRST = 0.5


class Family(StrEnum):
    """Kinds of models; models of one family may share a module."""

    FLOAT = "float"
    HALF = "half"
    QUANTISED = "quantised"
    INTEGER = "integer"


@dataclass(frozen=True)
class Generated:
    """A random model.

    Attributes:
        seed: seed of the model.
        model: the valid ONNX model.
        smooth: whether the model has no discontinuous operators.
    """

    seed: int
    model: ModelProto
    smooth: bool


_WINDOWS: Mapping[Step, int] = {
    windows.convolution: 12,
    windows.transposed_convolution: 3,
    windows.pooling: 4,
    windows.global_pooling: 1,
    windows.residual_block: 2,
    windows.separable_block: 3,
    windows.wide_groups: 1,
    windows.excitation: 1,
    windows.shuffled_channels: 1,
    windows.resized: 2,
    windows.blocks_of_space: 1,
}
_PRODUCTS: Mapping[Step, int] = {
    products.matmul: 6,
    products.product_of_values: 3,
    products.gemm: 4,
    products.einsum: 1,
    products.attention: 2,
    products.perceptron: 1,
}
_ELEMENTWISE: Mapping[Step, int] = {
    elementwise.activation: 4,
    elementwise.guarded: 1,
    elementwise.clip: 2,
    elementwise.parametric: 1,
    elementwise.binary: 7,
    elementwise.variadic: 1,
    elementwise.masked: 1,
}
_JUMPING: Mapping[Step, int] = {elementwise.jumping: 1, elementwise.comparison: 1, elementwise.cast: 1}
_MOVEMENT: Mapping[Step, int] = {
    movement.transpose: 3,
    movement.reshape: 3,
    movement.flatten: 1,
    movement.squeeze: 2,
    movement.concat: 4,
    movement.split: 3,
    movement.slices: 3,
    movement.gather: 2,
    movement.gather_elements: 1,
    movement.embedding: 1,
    movement.pad: 2,
    movement.expand: 1,
    movement.tile: 1,
    movement.triangle: 1,
    movement.strided_parts: 1,
}
_REDUCTIONS: Mapping[Step, int] = {
    reductions.reduction: 4,
    reductions.softmax: 2,
    reductions.layer_norm: 2,
    reductions.written_layer_norm: 1,
    reductions.batch_norm: 2,
    reductions.instance_norm: 1,
    reductions.local_response: 1,
    reductions.running_sum: 1,
}
_ORDERS: Mapping[Step, int] = {reductions.position_of_extreme: 1, reductions.largest: 1}
_INTEGERS: Mapping[Step, int] = {
    integers.arithmetic: 5,
    integers.unary: 2,
    integers.reduced: 3,
    integers.compared: 2,
    integers.one_hot: 1,
    integers.to_real: 2,
    integers.product: 3,
    integers.convolution: 3,
}
_QUANTISED: Mapping[Step, int] = {
    quantised.convolution: 6,
    quantised.product: 4,
    quantised.addition: 3,
    quantised.moved: 4,
    quantised.integer_convolution: 3,
    quantised.integer_product: 2,
    quantised.dynamic_product: 1,
}
_SMOOTH = (_WINDOWS, _PRODUCTS, _ELEMENTWISE, _MOVEMENT, _REDUCTIONS)
_STEPS: Mapping[Family, Sequence[Mapping[Step, int]]] = {
    Family.FLOAT: _SMOOTH,
    Family.HALF: (*_SMOOTH, _JUMPING),
    Family.QUANTISED: (_QUANTISED, _QUANTISED, _MOVEMENT),
    Family.INTEGER: (_INTEGERS, _INTEGERS, _MOVEMENT, _JUMPING),
}
_JUMPING_TOO = 0.25


def generate(seed: int, family: Family, opset: int) -> Generated:
    """Return the model of a seed; the same arguments give the same model."""
    for attempt in itertools.count():
        random = np.random.default_rng([seed, attempt])
        graph = Graph(random, opset, "float16" if family is Family.HALF else "float32", f"m{seed}_")
        try:
            model = _drawn(graph, family)
        except UnfitError:
            continue
        if _is_usable(model):
            return Generated(seed, model, graph.smooth)
    raise AssertionError("counting ends never")


def _drawn(graph: Graph, family: Family) -> ModelProto:
    """Return a model of a few random steps."""
    groups = list(_STEPS[family])
    if family is Family.FLOAT and graph.chance(_JUMPING_TOO):
        groups += [_JUMPING, _ORDERS]
    # Leave out some kinds of operators, so that operators of one kind meet more often, as in real models.
    groups = [group for group in groups if graph.chance(0.75)] or groups
    steps = [step for group in groups for step, weight in group.items() for _ in range(weight)]
    for _ in range(graph.integer(1, 2)):
        graph.input(graph.shape(graph.one_of((1, 2, 2, 3, 4, 4, 4))))
    for _ in range(graph.one_of(_STEP_COUNTS)):
        _insert(graph, steps)
    return graph.model()


def _insert(graph: Graph, steps: Sequence[Step]) -> None:
    for _ in range(_TRIES_PER_STEP):
        try:
            graph.one_of(steps)(graph)
        except UnfitError:
            continue
        return


def _is_usable(model: ModelProto) -> bool:
    """Whether ONNX's checker and ONNX Runtime accept a model, and its outputs are finite."""
    try:
        onnx.checker.check_model(model, full_check=True)
        outputs = ReferenceModel(model.SerializeToString(), threads=1, optimises=False)(sample_inputs(model, 0))
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError, SartorError):
        return False
    return all(bool(np.isfinite(output.astype(np.float64)).all()) for output in outputs)


def opened(model: ModelProto, random: np.random.Generator) -> ModelProto:
    """The model with one of its inputs' sizes open wherever an input has it, and that size as metadata.

    The first dimension of an input is drawn as often as all others, as others are more often those of weights. A model
    whose inputs have no size above one is returned as it is.
    """
    found = ModelProto()
    found.CopyFrom(model)
    shapes = [value.type.tensor_type.shape.dim for value in found.graph.input]
    firsts = [dims[0].dim_value for dims in shapes if dims and dims[0].dim_value > 1]
    sizes = [dim.dim_value for dims in shapes for dim in dims if dim.dim_value > 1]
    if not sizes:
        return found
    listed = firsts if firsts and random.random() < _FIRST else sizes
    size = listed[int(random.integers(len(listed)))]
    for dim in (dim for dims in shapes for dim in dims if dim.dim_value == size):
        dim.dim_param = SYMBOL
    for value in found.graph.output:
        for dim in value.type.tensor_type.shape.dim:
            dim.Clear()
    del found.graph.value_info[:]
    found.metadata_props.add(key=SYMBOL, value=str(size))
    return found


def joined(models: Sequence[ModelProto]) -> ModelProto:
    """Return one model that contains the given ones, which have one opset and distinct names."""
    first = models[0]
    whole = ModelProto(ir_version=first.ir_version)
    whole.graph.name = first.graph.name
    seen: set[tuple[str, int]] = set()
    for model in models:
        for field in ("node", "initializer", "input", "output", "value_info"):
            getattr(whole.graph, field).extend(getattr(model.graph, field))
        whole.metadata_props.extend(model.metadata_props)
        for each in model.opset_import:
            if (each.domain, each.version) not in seen:
                seen.add((each.domain, each.version))
                whole.opset_import.append(each)
    return whole
