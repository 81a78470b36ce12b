"""Rewrites of operators that ONNX Runtime cannot run: right ones pass, and planted faults are caught and named."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import ml_dtypes
import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

from sartor.errors import RewriteError, UnsupportedModelError
from sartor.onnx_model.graphs.emit import Emitter
from sartor.onnx_model.graphs.graph import GraphEditor, static_shape
from sartor.onnx_model.preparing import prepare as preparing
from sartor.onnx_model.preparing.simplify import simplify
from sartor.onnx_model.rewrites.operator_sets import expand_operators
from sartor.onnx_model.rewrites.operator_sets.contrib import group_norm
from sartor.onnx_model.rewrites.operator_sets.expand_operators import CONTRIB_OPERATORS
from sartor.reference.random_inputs import USUAL, sample_inputs
from sartor.reference.trusted.oracles.vouchers import Voucher, voucher_of
from sartor.reference.trusted.reference_model import ReferenceModel
from sartor.reference.vouching import node_rewrites
from sartor.reference.vouching.node_rewrites import NodeRewrites
from sartor.reference.vouching.rewrite_check import Checked, checked_rewrites
from sartor.samples import rewritten_samples
from sartor.samples.rewritten_samples import RewriteCheck
from sartor.tuning.workers.pool import WorkerPool
from sartor.tuning.workers.protocol import WorkerError
from tests.importing import imported_model
from tests.plugin.amplifying_networks import image, quantised
from tests.plugin.onnx_model.builders import FLOAT, MS, Array, ints, model, node, weights
from tests.plugin.reference.vouching.definition_cases import CASES, Fault


def _checked(
    built: ModelProto, folder: Path, rewritten: ModelProto | None = None, uncompared: Sequence[str] = ()
) -> bool:
    """What the check of a compilation says of a model, prepared with the rewrites as they are, or of another one.

    ``uncompared`` begins what it says of operators that are not compared alone.
    """
    path = folder / "model.onnx"
    path.write_bytes(built.SerializeToString())
    sizes = {value.name: dims for value in built.graph.input if (dims := static_shape(value.type)) is not None}
    prepared = preparing.prepare(rewritten or built, sizes).model
    found = checked_rewrites(path, prepared.SerializeToString(), [sample_inputs(prepared, 0)], (), 0.0)
    if isinstance(found, WorkerError):
        raise found.error
    assert len(found.reasons) == len(uncompared)
    assert all(map(str.startswith, found.reasons, uncompared)), found.reasons
    return found.is_compared


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without onnxslim, whose process takes a second to start."""
    steps = tuple(step for step in preparing.SIMPLIFY if step is not simplify)
    monkeypatch.setattr(preparing, "SIMPLIFY", steps)


@pytest.mark.parametrize("name", sorted(CASES))
def test_right_rewrite_passes(name: str, tmp_path: Path) -> None:
    assert _checked(CASES[name].build(), tmp_path)


@pytest.mark.parametrize(
    ("name", "fault"), [(name, fault) for name in sorted(CASES) for fault in CASES[name].faults], ids=str
)
def test_fault_in_a_rewrite_is_caught_and_named(
    name: str, fault: Fault, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = CASES[name].build()
    operator = CASES[name].operator
    domain = next(node.domain for node in built.graph.node if node.op_type == operator)
    lowerings = expand_operators._LOWERINGS[domain]
    right = lowerings[operator]

    def wrong(node: Any, editor: GraphEditor) -> Any:
        return fault.planted(right, node, editor)

    monkeypatch.setitem(lowerings, operator, wrong)
    with pytest.raises(
        RewriteError, match=rf"internal: the rewrite of node .*{operator}\) differs from its definition"
    ):
        _checked(built, tmp_path)


# Bounds of means and variances of small groups are wider.
SHARP = sorted(name for name, case in CASES.items() if case.faults[0].scale and "group_norm" not in name)


@pytest.mark.parametrize("name", SHARP)
def test_small_errors_that_rounding_does_not_explain_are_caught(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built, operator = CASES[name].build(), CASES[name].operator
    domain = next(node.domain for node in built.graph.node if node.op_type == operator)
    lowerings = expand_operators._LOWERINGS[domain]
    right, is_half = lowerings[operator], built.graph.input[0].type.tensor_type.elem_type == TensorProto.FLOAT16
    fault = Fault(scale=1.004 if is_half else 1.0002)
    monkeypatch.setitem(lowerings, operator, lambda node, editor: fault.planted(right, node, editor))
    with pytest.raises(RewriteError, match="differs from its definition"):
        _checked(built, tmp_path)


def test_rests_of_sums_that_cancel_may_be_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where its bias is far below zero, 1 + erf has few digits: numbers there lie octaves below the others."""
    bias = weights(16, seed=3)
    bias[8:12] -= 7
    nodes = [node("BiasSplitGelu", ["x", "b"], ["gated"], domain=MS), node("MatMul", ["gated", "w"], ["y"])]
    built = model(nodes, [("x", (2, 3, 16), FLOAT)], ["y"], {"b": bias, "w": weights(8, 4)})
    assert _checked(built, tmp_path)
    lowerings = expand_operators._LOWERINGS[MS]
    right = lowerings["BiasSplitGelu"]
    fault = Fault(scale=1.0002)
    monkeypatch.setitem(lowerings, "BiasSplitGelu", lambda given, editor: fault.planted(right, given, editor))
    with pytest.raises(RewriteError, match="differs from its definition"):
        _checked(built, tmp_path)


def _low(operator: str) -> ModelProto:
    """A node whose results are outputs, with a bias that is far below zero in some channels."""
    size, places = {"BiasSplitGelu": (16, slice(8, 12)), "GemmFastGelu": (8, slice(2, 4))}.get(
        operator, (64, slice(32, 64))
    )
    bias = weights(size, seed=3)
    bias[places] -= 95 if operator == "BiasSoftmax" else 7
    product, softmax = operator == "GemmFastGelu", operator == "BiasSoftmax"
    constants = {"b": bias.reshape(1, 1, size) if softmax else bias} | ({"w": weights(size, size)} if product else {})
    found = {"axis": 2, "is_inner_broadcast": 1} if softmax else {}
    item = node(operator, ["x", "w", "b"] if product else ["x", "b"], ["y"], domain=MS, **found)
    return model([item], [("x", (2, 3, size), FLOAT)], ["y"], constants)


@pytest.mark.parametrize("operator", ["BiasSplitGelu", "GemmFastGelu", "BiasSoftmax"])
def test_results_far_below_the_others_may_be_off_by_what_rounding_explains(
    operator: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1 + erf and 1 + tanh have few digits there, and what Softmax gives is subnormal: which counts as zero."""
    built = _low(operator)
    assert _checked(built, tmp_path)
    # The whole model alone sees faults too: a scale of all, and a bias that is off where results are far below.
    monkeypatch.setattr(NodeRewrites, "compare", lambda *_: None)
    lowerings = expand_operators._LOWERINGS[MS]
    right, (bias,) = (
        lowerings[operator],
        (initializer for initializer in built.graph.initializer if initializer.name == "b"),
    )
    wrong = ModelProto()
    wrong.CopyFrom(built)
    off = numpy_helper.to_array(bias).copy()
    off[off < -4] /= 4
    wrong.graph.initializer.remove(bias)
    wrong.graph.initializer.append(numpy_helper.from_array(off, "b"))
    with pytest.raises(RewriteError, match="in the output 'y'"):
        _checked(built, tmp_path, wrong)
    monkeypatch.setitem(lowerings, operator, lambda given, editor: Fault(scale=1.002).planted(right, given, editor))
    with pytest.raises(RewriteError, match="in the output 'y'"):
        _checked(built, tmp_path)


def _checked_without_nodes(case: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Checked, str]:
    """The check of a case whose node cannot be prepared alone, and what it says of that node."""

    def refuse(*_: object, **__: object) -> None:
        raise UnsupportedModelError("its size is not known")

    monkeypatch.setattr(node_rewrites, "prepare", refuse)
    built, path = CASES[case].build(), folder / "model.onnx"
    path.write_bytes(built.SerializeToString())
    prepared = preparing.prepare(built).model
    samples = [sample_inputs(prepared, seed) for seed in (0, 1)]
    found = checked_rewrites(path, prepared.SerializeToString(), samples, (), 0.0)
    assert isinstance(found, Checked)
    (reason,) = found.reasons
    return found, reason


def test_a_node_that_cannot_be_checked_alone_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found, reason = _checked_without_nodes("layer_norm", tmp_path, monkeypatch)
    assert re.match(r"node '.*' \(com.microsoft.LayerNormalization\): its size is not known; it is compared", reason)
    assert found.is_compared


def test_a_node_of_a_model_that_rounds_is_compared_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, reason = _checked_without_nodes("reduced_mean", tmp_path, monkeypatch)
    assert reason.endswith("its size is not known; it is compared later, as layers of modules are")


@pytest.mark.parametrize(
    ("reasons", "told"),
    [(("node 'n' (Other): nobody runs it",), "node 'n' (Other)"), ((), "rounding moves its outputs by more than any")],
)
def test_the_user_is_told_what_was_not_checked(
    reasons: tuple[str, ...],
    told: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(rewritten_samples, "call", lambda *_: Checked(False, reasons))
    imported = Mock(has_definitions=True, path=tmp_path / "model.onnx", samples={}, styles=(USUAL,))
    rewritten_samples.check_rewrites(Mock(), imported, None)
    (record,) = caplog.records
    assert record.getMessage().startswith("model.onnx: rewrites of its nodes are not checked")
    assert told in record.getMessage()


def test_a_check_that_goes_on_beside_the_rest_ends_as_one_that_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    constants = {"g": weights(4), "b": weights(4, seed=1)}
    item = node("GroupNorm", ["x", "g", "b"], ["y"], domain=MS, groups=2, activation=1)
    built, path = model([item], [("x", (1, 2, 2, 4), FLOAT)], ["y"], constants), tmp_path / "model.onnx"
    path.write_bytes(built.SerializeToString())
    right = preparing.prepare(built).model
    wrong = ModelProto.FromString(right.SerializeToString())
    scaled = next(initializer for initializer in wrong.graph.initializer if initializer.data_type == FLOAT)
    scaled.CopyFrom(numpy_helper.from_array(np.float32(1.5) * numpy_helper.to_array(scaled), scaled.name))
    source = SimpleNamespace(since=lambda _: iter([sample_inputs(right, 0)]))
    monkeypatch.setattr(rewritten_samples, "sample_set", lambda *_, **__: SimpleNamespace(source=source))
    with WorkerPool(1) as pool:
        checks = [
            RewriteCheck(
                pool,
                Mock(has_definitions=True, path=path, prepared=each.SerializeToString(), bound=(), tie_spread=0.0),
                None,
            )
            for each in (right, wrong)
        ]
        for check in checks:
            check.begin()
        checks[0].finish()
        with pytest.raises(RewriteError, match="differs from the definition of GroupNorm"):
            checks[1].finish()


def test_every_rewrite_of_what_onnx_runtime_cannot_run_has_planted_faults() -> None:
    defined = {name for name in CONTRIB_OPERATORS if voucher_of((MS, name)) is Voucher.DEFINITION}
    assert defined == {case.operator for case in CASES.values()}
    assert all(case.faults for case in CASES.values())


@pytest.mark.parametrize("shape", [(0, 6, 5, 4), (2, 0, 5, 4)])
def test_rewrite_of_no_elements_passes(shape: tuple[int, ...], tmp_path: Path) -> None:
    constants = {"g": weights(4), "b": weights(4, seed=1)}
    item = node("GroupNorm", ["x", "g", "b"], ["y"], domain=MS, groups=2, activation=1)
    assert _checked(model([item], [("x", shape, FLOAT)], ["y"], constants), tmp_path)


def test_constant_and_computed_operands_are_rewritten_otherwise() -> None:
    nodes = [node("NhwcConv", ["x", name], [out], name=out, domain=MS) for name, out in zip("wvw", "abc", strict=True)]
    feeds = {"x": weights(1, 6, 6, 3), "v": weights(8, 3, 3, 3, seed=1)}
    inputs = [(name, fed.shape, FLOAT) for name, fed in feeds.items()]
    built = model(nodes, inputs, ["a", "b", "c"], {"w": feeds["v"]})
    rewrites = NodeRewrites(built, 1e-3)
    calls = ReferenceModel(built.SerializeToString()).calls(feeds)
    assert [rewrites.compare(call, outputs) is not None for call, outputs in calls] == [True, True, False]


@pytest.mark.parametrize("moved", [0.0, 0.01])
def test_definition_that_fails_on_other_values_hides_no_fault(moved: float, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: object) -> list[Array]:
        raise KeyError("epsilon")

    built = CASES["layer_norm"].build()
    ((call, (right, *_)),) = ReferenceModel(built.SerializeToString()).calls({"x": weights(2, 3, 8)})
    monkeypatch.setattr(node_rewrites, "definition_of", lambda _: fail)
    rewrites = NodeRewrites(built, 1e-3)
    found = rewrites.compare(call, [right + np.float32(moved)])
    assert (found is not None and found.is_wrong) == bool(moved)
    (reason,) = rewrites.uncompared
    assert reason.endswith("(com.microsoft.LayerNormalization): its definition fails on other values: 'epsilon'")


def test_node_with_an_empty_past_is_compared() -> None:
    sizes = {"q": (2, 4, 3, 8), "k": (2, 4, 6, 8), "v": (2, 4, 6, 8), "m": (2, 1, 3, 4)}
    feeds = {name: weights(*size) for name, size in {**sizes, "pk": (2, 4, 0, 8), "pv": (2, 4, 0, 8)}.items()}
    item = helper.make_node("Attention", list(feeds), ["y", "qk", "qv"], name="attention")
    built = model([item], [(name, fed.shape, FLOAT) for name, fed in feeds.items()], ["y", "qk", "qv"], opset=24)
    built.ir_version = 11
    ((call, outputs),) = ReferenceModel(built.SerializeToString()).calls(feeds)
    wrong = [outputs[0] * np.float32(1.01), *outputs[1:]]
    for given, is_wrong in ((outputs, False), (wrong, True)):
        found = NodeRewrites(built, 1e-3).compare(call, given)
        assert found is not None
        assert found.is_wrong == is_wrong


def test_wrong_mean_is_caught_though_that_of_the_samples_is_near_zero(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mean = group_norm._mean

    def wrong(emit: Emitter, rows: str, part: str, count: float) -> str:
        return mean(emit, rows, part, count * 1.005 if part == "mean" else count)  # type: ignore[arg-type]

    monkeypatch.setattr(group_norm, "_mean", wrong)
    with pytest.raises(RewriteError, match="differs from its definition"):
        _checked(CASES["group_norm"].build(), tmp_path)


def _wrong_cast() -> tuple[ModelProto, ModelProto]:
    """A cast to four bits, and one that rounds as ONNX Runtime does."""
    casts = [node("Cast", ["r"], ["i"], to=TensorProto.INT4), node("Cast", ["i"], ["y"], name="back", to=FLOAT)]
    both = ([node(name, ["x"], ["r"]), *casts] for name in ("Identity", "Round"))
    right, wrong = (model(nodes, [("x", (40,), FLOAT)], ["y"], opset=21) for nodes in both)
    return right, wrong


def _wrong_product() -> tuple[ModelProto, ModelProto]:
    """A product in bfloat16, and one by the transposed matrix."""
    w = weights(32, 32).astype(ml_dtypes.bfloat16)
    nodes = [
        node("Cast", ["x"], ["b"], to=TensorProto.BFLOAT16),
        node("MatMul", ["b", "w"], ["p"]),
        node("Cast", ["p"], ["y"], name="back", to=FLOAT),
    ]
    right, wrong = (model(nodes, [("x", (4, 32), FLOAT)], ["y"], {"w": each}) for each in (w, w.T.copy()))
    return right, wrong


def _wrong_mask() -> tuple[ModelProto, ModelProto]:
    """Attention by a mask that is shorter than the keys, and by one that admits the last keys."""
    sizes = {"q": (2, 4, 3, 8), "k": (2, 2, 6, 8), "v": (2, 2, 6, 8), "m": (2, 1, 3, 4)}
    inputs = [(name, size, FLOAT) for name, size in sizes.items()]
    item = helper.make_node("Attention", ["q", "k", "v", "a"], ["y"], name="attention")
    pad = node("Pad", ["m", "p"], ["a"])
    right = model([node("Identity", ["m"], ["a"]), item], inputs, ["y"], opset=24)
    wrong = model([pad, item], inputs, ["y"], {"p": ints(0, 0, 0, 0, 0, 0, 0, 2)}, opset=24)
    for each in (right, wrong):
        each.ir_version = 11
    return right, wrong


FOREIGN = {
    _wrong_cast: ["operator Cast of int4: its element types are not compared alone"],
    _wrong_product: ["operator MatMul of bfloat16: its element types are not compared alone"],
    _wrong_mask: list[str](),
}


@pytest.mark.parametrize("build", FOREIGN)
def test_what_onnx_runtime_does_not_compute_or_computes_otherwise_is_checked(
    build: Callable[[], tuple[ModelProto, ModelProto]], tmp_path: Path
) -> None:
    right, wrong = build()
    assert _checked(right, tmp_path, uncompared=FOREIGN[build])
    with pytest.raises(RewriteError, match=r"internal: the rewritten model differs from .*definition of"):
        _checked(right, tmp_path, wrong)


def test_ties_that_a_network_amplifies_refuse_no_rewrite(tmp_path: Path) -> None:
    path = quantised("inverted", tmp_path, "qoperator")
    imported = imported_model(path)
    # On the second image a tie falls to the other side, and moves the output by more than any bound.
    for seed in (18, 19):
        found = checked_rewrites(path, imported.prepared, [{"x": image(seed)}], (), imported.tie_spread)
        assert not isinstance(found, WorkerError), found.error
