"""Products of integers of any number of rows, between which values are stored in 8 bits."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from sartor.codegen.ir.graph import LayerGraph
from sartor.codegen.ir.layer import LayerKind, TensorType
from sartor.codegen.ir.schema import QUANTISED, Schema
from sartor.codegen.ir.sizes.dims import Extent, Symbol
from sartor.codegen.ir.variants.routine import Variant
from sartor.codegen.kernels.isa.multipliers import INTEGER_DOTS
from sartor.codegen.linking.adapts import AdaptKind, adapt
from sartor.codegen.mlir.machine import machine_of
from sartor.codegen.routines import routines_for
from sartor.costing.listing import list_candidates
from sartor.frontend.imported_model import ImportedModel
from sartor.policies import Precision
from sartor.precision.eligibility import eligibility
from sartor.reference.trusted.reference_model import ReferenceModel
from sartor.runtime.session import Session
from sartor.tuning.networks.build_job import NetFiles, SplitNetwork, build_net
from sartor.tuning.records.signature import net_signature
from sartor.tuning.transfers.conversions import adapts_between
from tests.dialect_passes.test_opening import TARGET, opened
from tests.open_models import named, saved
from tests.plugin.onnx_model.builders import FLOAT, model, weights
from tests.plugin.quantised_models import Qdq

DEPTH, WIDTH, LAST = 69, 70, 19
ROWS = Symbol("rows", 1, 61)
SIZES = [1, 2, 3, 4, 5, 7, 8, 9, 13, 16, 17, 23, 24, 25, 31, 47, 49, 53, 59, 61]
STEP = np.float32(6 / 255)

pytestmark = pytest.mark.skipif(
    INTEGER_DOTS.refusal(machine_of(TARGET)) is not None, reason="the CPU does not multiply 8 bits"
)


@dataclass(frozen=True)
class Network:
    """Two quantised products of any number of rows."""

    path: Path
    graph: LayerGraph
    model: ImportedModel

    def integer_code(self, converts: bool) -> dict[str, Variant]:
        """Products of integers, and other layers in 8 bits as well, or with conversions before and behind them."""
        listed = list_candidates(self.graph, routines_for({QUANTISED}), TARGET).variants
        may_run, found = eligibility(self.model, Precision.F32), {}
        for layer in self.graph.layers:
            stock, *others = listed[layer.task.key]
            is_product = layer.task.kind is LayerKind.CONTRACTION
            own = [each for each in others if each.dtype == QUANTISED and may_run(layer, each)]
            own = [each for each in own if each.routine == ("dots" if is_product else "rowwise")]
            found[layer.name] = stock if not own or (converts and not is_product) else own[0]
        return found

    def wrong_sizes(self, code: dict[str, Variant], path: Path) -> list[int]:
        """Sizes at which a result is not that of ONNX Runtime, but for a few that are next to a tie."""
        net = SplitNetwork(self.graph, code, self.model.ranges)
        build_net(net, self.model.weights, TARGET, "", NetFiles(path, None))
        session = Session(path, signature=net_signature((self.graph.inputs, self.graph.outputs)), threads=2)
        reference, wrong = ReferenceModel(self.path, threads=1), []
        for rows in SIZES:
            x = np.random.default_rng(rows).standard_normal((rows, DEPTH)).astype(np.float32)
            (found,), (expected,) = session.run(None, {"x": x}), reference({"x": x})
            steps = np.abs(found - expected) / STEP
            if not (steps.max() < 1.01 and (steps > 0.5).mean() < 0.02):
                wrong.append(rows)
        return wrong


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Network:
    q = Qdq("int8")
    x = q.pair("x", -3.0, 3.1)
    first = q.op("MatMul", [x, q.weight("w1", weights(DEPTH, WIDTH, scale=0.1), axis=1)], "first")
    first = q.pair(q.op("Relu", [first], "relu"), 0.0, 2.5)
    part = q.pair(q.op("Softmax", [first], "part", axis=-1), 0.0, 0.1)
    q.op("MatMul", [part, q.weight("w2", weights(WIDTH, LAST, seed=1, scale=4.0), axis=1)], "second")
    q.pair("second", -3.0, 3.0, output="y")
    made = named(
        model(q.nodes, [("x", (1, DEPTH), FLOAT)], [("y", (1, LAST), FLOAT)], q.constants),
        {"x": ["rows", DEPTH], "y": ["rows", LAST]},
    )
    path = saved(made, tmp_path_factory.mktemp("integers") / "model.onnx")
    return Network(path, *opened(path, [ROWS], lambda sizes: {"x": (sizes["rows"], DEPTH)}))


@pytest.mark.parametrize("converts", [False, True])
def test_products_of_integers_are_right_for_any_number_of_rows(
    converts: bool, network: Network, tmp_path: Path
) -> None:
    code = network.integer_code(converts)
    assert [each.routine for each in code.values()].count("dots") == 2
    kinds = [kind for _, kind in adapts_between(network.graph, code, TARGET.device)]
    assert all(kind.dims for kind in kinds)
    assert {QUANTISED, "f32"} == {kind.target.dtype for kind in kinds}
    assert ("rowwise" in {each.routine for each in code.values()}) != converts
    assert network.wrong_sizes(code, tmp_path / "model.vmfb") == []


def test_conversions_of_any_size_are_told_apart_by_what_sizes_follow_from() -> None:
    here, there = Schema("cpu", "f32", "nd"), Schema("cpu", QUANTISED, "nd")
    one, other = (TensorType.of_dims([Extent((ROWS,), factor), 3], "f32") for factor in (1, 2))
    kinds = [AdaptKind.between(each, here, there) for each in (one, other, TensorType((61, 3), "f32"))]
    assert len({kind.key for kind in kinds if kind is not None}) == 3
    assert [kind.logical for kind in kinds if kind is not None][:2] == [one, other]
    image = TensorType.of_dims([1, 16, Extent((ROWS,)), 4], "f32")
    with pytest.raises(ValueError, match="not moved between layouts"):
        adapt(image, Schema("cpu", "f32", "nchw"), Schema("cpu", "f32", "nhwc"))
