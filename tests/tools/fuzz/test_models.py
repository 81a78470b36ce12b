"""Random models are valid, reproducible by their seeds, and contain many operators."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from tools.fuzz.graph import Graph
from tools.fuzz.models import SYMBOL, Family, generate, joined, opened
from tools.fuzz.operators.windows import all_read, window

OPSET = 18
SEEDS = range(12)


@pytest.mark.parametrize("family", Family)
def test_the_same_seed_gives_the_same_model(family: Family) -> None:
    first, second = generate(3, family, OPSET), generate(3, family, OPSET)
    assert first.model.SerializeToString() == second.model.SerializeToString()
    assert first.model != generate(4, family, OPSET).model


@pytest.mark.parametrize("family", Family)
def test_models_joined_into_one_are_a_valid_model(family: Family) -> None:
    models = [generate(seed, family, OPSET).model for seed in SEEDS]
    whole = joined(models)
    onnx.checker.check_model(whole, full_check=True)
    assert len(whole.graph.node) == sum(len(model.graph.node) for model in models)
    assert len({node.op_type for node in whole.graph.node}) >= 10


def test_a_size_is_opened_wherever_inputs_have_it() -> None:
    is_open = 0
    for seed in SEEDS:
        model = generate(seed, Family.FLOAT, OPSET).model
        found = opened(model, np.random.default_rng(seed))
        size = next((int(each.value) for each in found.metadata_props if each.key == SYMBOL), None)
        if size is None:
            assert found == model, "it has no size above one"
            continue
        for before, after in zip(model.graph.input, found.graph.input, strict=True):
            dims = zip(before.type.tensor_type.shape.dim, after.type.tensor_type.shape.dim, strict=True)
            for old, new in dims:
                assert (new.dim_param, new.dim_value) == ((SYMBOL, 0) if old.dim_value == size else ("", old.dim_value))
                is_open += new.dim_param == SYMBOL
        onnx.checker.check_model(found, full_check=True)
    assert is_open >= len(SEEDS) - 2


def test_what_jumps_is_told_apart_from_what_is_smooth() -> None:
    jumping = {"ArgMax", "ArgMin", "Floor", "Ceil", "Round", "Sign", "Greater", "Less", "TopK"}
    drawn = [generate(seed, Family.FLOAT, OPSET) for seed in range(60)]
    assert {each.smooth for each in drawn} == {True, False}
    for each in drawn:
        assert not (each.smooth and jumping & {node.op_type for node in each.model.graph.node})


def test_windows_without_padding_fit_into_the_image() -> None:
    """ONNX's shape inference counts one where they do not, and ONNX Runtime computes it."""
    graph = Graph(np.random.default_rng(0), OPSET, "float32", "")
    drawn = [window(graph, (2,)) for _ in range(300)]
    kernels = [each["kernel_shape"][0] for each in drawn if each.get("auto_pad") == "VALID"]
    assert {1, 2} == set(kernels)


@pytest.mark.parametrize(("size", "pads", "is_read"), [(1, [1, 1], False), (2, [1, 1], True), (1, [0, 2], True)])
def test_windows_over_padding_alone_are_told_apart(size: int, pads: list[int], is_read: bool) -> None:
    attributes = {"kernel_shape": [2], "strides": [1], "dilations": [2], "pads": pads}
    assert all_read((size,), attributes) is is_read
    assert all_read((size,), {**attributes, "pads": [0, 0]})
