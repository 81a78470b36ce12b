"""What refusals of random models advise is done until they are prepared, or a message says that it is not enough."""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Callable

import numpy as np
import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from sartor.cli.options.common import read_bindings, read_shapes
from sartor.errors import SartorError
from sartor.onnx_model.preparing.prepare import prepare
from tools.fuzz.models import OPSETS, Family, generate

_SMALL = 16
_KINDS = (TensorProto.INT64, TensorProto.INT32, TensorProto.BOOL)
_OPTION = re.compile(r"--(?:shape|bind) [^ ]*=")
# What a message may end with that offers no options.
_KNOWN_BY_THE_USER = ("that the model is used with", "operands that are constant", "before exporting")


def _copied(model: ModelProto) -> ModelProto:
    copy = ModelProto()
    copy.CopyFrom(model)
    del copy.graph.value_info[:]
    for output in copy.graph.output:
        output.type.tensor_type.ClearField("shape")
    return copy


def _freed(model: ModelProto, random: np.random.Generator) -> ModelProto | None:
    """With a small constant of integers, as shapes and axes are, as an input."""
    copy = _copied(model)
    small = [
        initializer
        for initializer in copy.graph.initializer
        if initializer.data_type in _KINDS and np.prod(initializer.dims) <= _SMALL
    ]
    if not small:
        return None
    freed = small[random.integers(len(small))]
    copy.graph.input.append(helper.make_tensor_value_info(freed.name, freed.data_type, freed.dims))
    copy.graph.initializer.remove(freed)
    return copy


def _symbolic(model: ModelProto, random: np.random.Generator) -> ModelProto | None:
    """With symbols for half of the inputs' sizes."""
    copy = _copied(model)
    for value in copy.graph.input:
        for axis, dim in enumerate(value.type.tensor_type.shape.dim):
            if random.random() < 0.5:
                dim.dim_param = f"{value.name}_{axis}"
    return copy


def _by_data(model: ModelProto, random: np.random.Generator) -> ModelProto | None:
    """With a small constant of integers that is computed from data."""
    copy = _freed(model, random)
    if copy is None:
        return None
    name, source = copy.graph.input[-1].name, copy.graph.input[0].name
    kind = copy.graph.input[-1].type.tensor_type.elem_type
    del copy.graph.input[-1]
    values = next(
        numpy_helper.to_array(initializer) for initializer in model.graph.initializer if initializer.name == name
    )
    copy.graph.initializer.append(numpy_helper.from_array(values, f"{name}/known"))
    joining = "Or" if kind == TensorProto.BOOL else "Add"
    nodes = [
        helper.make_node("ReduceMax", [source], [f"{name}/most"], name=f"{name}/most", keepdims=0),
        helper.make_node("Cast", [f"{name}/most"], [f"{name}/drawn"], name=f"{name}/drawn", to=kind),
        helper.make_node(joining, [f"{name}/drawn", f"{name}/known"], [name], name=f"{name}/joined"),
        *(NodeProto.FromString(node.SerializeToString()) for node in copy.graph.node),
    ]
    del copy.graph.node[:]
    copy.graph.node.extend(nodes)
    return copy


def _options(message: str) -> list[tuple[str, str]]:
    found = _OPTION.search(message)
    words = shlex.split(message[found.start() :]) if found else []
    pairs = itertools.pairwise(words)
    return [(word, text.rstrip(",;")) for word, text in pairs if word in ("--shape", "--bind") and "=" in text]


def _prepared(model: ModelProto, given: dict[str, dict[str, str]]) -> str:
    """The refusal of a model with options; empty if there is none."""
    shapes, bindings = (list(given[name].values()) for name in ("--shape", "--bind"))
    try:
        prepare(model, read_shapes(shapes), lambda _: (), read_bindings(bindings))
    except SartorError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("change", [_freed, _symbolic, _by_data])
@pytest.mark.parametrize("seed", [4, 13, 15, 22, 52, 130])
def test_what_a_message_advises_works(
    seed: int, change: Callable[[ModelProto, np.random.Generator], ModelProto | None]
) -> None:
    families = list(Family)
    base = generate(seed, families[seed % len(families)], OPSETS[seed % len(OPSETS)]).model
    model = change(base, np.random.default_rng(seed))
    if model is None:
        pytest.skip("the model has no small integers")
    given: dict[str, dict[str, str]] = {"--shape": {}, "--bind": {}}
    message = _prepared(model, given)
    for _ in range(4):
        options = _options(message)
        if not options:
            break
        for option, text in options:
            given[option][text.partition("=")[0]] = text
        message = _prepared(model, given)
    assert not message or any(each in message for each in _KNOWN_BY_THE_USER), message
