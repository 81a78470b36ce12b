"""Random models, plans and long campaigns: valid, reproducible, and shrunk as long as they fail."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import ModelProto

from sartor.policies import Precision
from tests.tiny_models import Builder, residual
from tools.fuzz.failures import WRONG, Failure
from tools.fuzz.forced_plans import forced_by
from tools.fuzz.graph import Graph
from tools.fuzz.models import SYMBOL, Family, generate, joined, opened
from tools.fuzz.operators.windows import all_read, window
from tools.fuzz.schedule import batch
from tools.fuzz.shrinking import shrunk
from tools.fuzz.trial import Setting, Subject

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


def test_every_precision_of_cpus_has_its_batches() -> None:
    drawn = {plan.setting.precision for number in range(100) for plan in batch(number).plans}
    # Of CPUs none multiplies TF32, what a model permits is not asked for, and weights of both widths are drawn apart.
    assert drawn == {each for each in Precision if not each.is_permitted} - {Precision.TF32, Precision.MIXED_WEIGHTS}


def _failure() -> Failure:
    b = Builder()
    conv = b.conv("conv", "x", (4, 8))
    soft = b.op("Softmax", "soft", b.op("Relu", "relu", conv), axis=1)
    b.op("Neg", "y", b.op("Tanh", "tanh", soft))
    b.op("Abs", "z", conv)
    model = b.model([("x", (1, 4, 5, 5))], [("y", (1, 8, 5, 5)), ("z", (1, 8, 5, 5))])
    forced = {"conv": "cpu:f32/conv2d.a", "soft": "cpu:f32/block.b"}
    return Failure(WRONG, "error 3", model.SerializeToString(), forced, Setting())


def _has_softmax_by_b(failure: Failure) -> Failure | None:
    wrong = "Softmax" in failure.operators and "soft" in (failure.forced or {})
    return replace(failure, message="error 4") if wrong else None


def test_only_the_node_and_the_choice_that_fail_are_left() -> None:
    found = shrunk(_failure(), _has_softmax_by_b)
    assert found.operators == ["Softmax"]
    assert dict(found.forced or {}) == {"soft": "cpu:f32/block.b"}
    assert found.message == "error 4"
    graph = ModelProto.FromString(found.model).graph
    assert ([each.name for each in graph.input], [each.name for each in graph.output]) == (["relu"], ["soft"])
    assert not graph.initializer


def test_a_failure_that_does_not_show_again_stays_as_it_is() -> None:
    failure = _failure()
    assert shrunk(failure, lambda _: None) == failure


def test_trying_ends_with_the_attempts() -> None:
    tried = []

    def never(failure: Failure) -> None:
        tried.append(failure)

    shrunk(_failure(), never, attempts=3)
    assert len(tried) == 3


def test_failures_that_look_alike_have_one_signature() -> None:
    one = replace(_failure(), message="relative error 3.1e-2, allowed is 0.001 (run 0)")
    other = replace(one, message="relative error 0.5, allowed is 0.001 (run 2)")
    assert one.signature == other.signature
    assert one.signature != replace(one, forced=None).signature


SETTING = Setting(architecture="x86-64-v3")


@pytest.fixture(scope="module")
def subject(tmp_path_factory: pytest.TempPathFactory) -> Subject:
    directory: Path = tmp_path_factory.mktemp("fuzz")
    return Subject(residual(), SETTING.architecture, directory)


def test_a_seed_names_the_plan(subject: Subject) -> None:
    forcer = subject.forcer(SETTING)
    plans = [forced_by(forcer.random(seed)) for seed in range(12)]
    assert plans == [forced_by(forcer.random(seed)) for seed in range(12)]
    assert len({str(plan) for plan in plans}) > 6


def test_a_plan_forced_by_names_is_the_same(subject: Subject) -> None:
    forcer = subject.forcer(SETTING)
    drawn = forcer.random(5)
    assert forcer.given(forced_by(drawn)).digest == drawn.digest


def test_what_a_plan_does_not_name_is_candidate_0(subject: Subject) -> None:
    recipe = subject.forcer(SETTING).given({"no such layer": "cpu:f32/conv2d.direct"})
    assert {variant.routine for variant in recipe.variants.values()} == {"stock"}


def test_narrower_types_are_drawn_where_they_are_allowed(subject: Subject) -> None:
    forcer = subject.forcer(Setting("x86-64-v3", precision=Precision.MIXED))
    types = {variant.dtype for seed in range(40) for variant in forcer.random(seed).variants.values()}
    assert types == {"f32", "bf16", "f16", "i8"}
