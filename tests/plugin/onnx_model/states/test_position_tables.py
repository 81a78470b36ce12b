"""How many positions tables have rows for, by what their rows are taken by."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, NodeProto, helper, numpy_helper

from sartor.errors import UnsupportedModelError, UsageError
from sartor.onnx_model.states.cut_caches import CutModel, cut_caches
from sartor.onnx_model.states.grown_caches import growing_caches
from sartor.runtime.driver.signature import Array
from sartor.settings.size_range import OpenShapes, SizeRange
from tests.cache_models import Decoder

ROWS = 8
KEY = "past_key_values.0.key"
NODE = helper.make_node
CONSTANTS: dict[str, Array] = {
    **{str(number): np.array(number, np.int64) for number in (0, 1, 2, 3, 7)},
    "bias": np.zeros((ROWS, 4), np.float32),
    "half": np.array(0.5, np.float32),
    "axis": np.array([1], np.int64),
    "angles": np.zeros((ROWS, 4), np.float32),
}
OFFSET = [NODE("Add", ["position_ids", "2"], ["index"])]
SATURATED = [NODE("Min", ["position_ids", "7"], ["index"])]
THIRDS = [NODE("Div", ["position_ids", "3"], ["index"])]
# As OPT counts what the mask shows.
COUNTED = [
    NODE("CumSum", ["attention_mask", "1"], ["counts"]),
    NODE("Add", ["counts", "1"], ["index"]),
]
# As T5 asks for the distances of all pairs.
DISTANCES = [
    NODE("Shape", ["attention_mask"], ["shape"]),
    NODE("Gather", ["shape", "1"], ["total"]),
    NODE("Range", ["0", "total", "1"], ["all"]),
    NODE("Unsqueeze", ["all", "axis"], ["column"]),
    NODE("Sub", ["column", "all"], ["distances"]),
    NODE("Abs", ["distances"], ["index"]),
]
BUCKETS = [*DISTANCES[:-1], NODE("Abs", ["distances"], ["apart"]), NODE("Min", ["apart", "7"], ["index"])]
# As RoBERTa numbers tokens that are no padding.
PADDED = [
    NODE("Equal", ["input_ids", "1"], ["is_padding"]),
    NODE("Not", ["is_padding"], ["is_shown"]),
    NODE("Cast", ["is_shown"], ["shown"], to=7),
    NODE("Add", ["position_ids", "2"], ["places"]),
    NODE("Mul", ["shown", "places"], ["index"]),
]
# Nothing evaluates a sine, which a table of indices would hardly be read by.
WAVES = [
    NODE("Cast", ["position_ids"], ["number"], to=1),
    NODE("Sin", ["number"], ["wave"]),
    NODE("Cast", ["wave"], ["index"], to=7),
]
TOKENS = [NODE("Add", ["input_ids", "0"], ["index"])]
ROTARY = [NODE("RotaryEmbedding", ["hidden", "position_ids", "angles", "angles"], ["turned"], domain="com.microsoft")]
OFFSET_ROTARY = [
    NODE("Add", ["position_ids", "2"], ["places"]),
    NODE("RotaryEmbedding", ["hidden", "places", "angles", "angles"], ["turned"], domain="com.microsoft"),
]


def cut(nodes: list[NodeProto], given: OpenShapes | None = None) -> CutModel:
    """The decoder with a further table, whose rows are taken by ``index``."""
    model: ModelProto = Decoder(layers=1, has_mask=True).model()
    model.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in CONSTANTS.items())
    added = [*nodes, NODE("Gather", ["bias", "index"], ["taken"])] if nodes[-1].op_type != "RotaryEmbedding" else nodes
    # Before those that are there, of which it is none's business.
    held = [*added, *model.graph.node]
    del model.graph.node[:]
    model.graph.node.extend(held)
    return cut_caches(model, growing_caches(model, {}, finds=True), given or {})


@pytest.mark.parametrize(
    ("nodes", "most", "table"),
    [
        (OFFSET, ROWS - 2, "bias"),
        (COUNTED, ROWS - 2, "bias"),
        (PADDED, ROWS - 2, "bias"),
        (DISTANCES, ROWS, "bias"),
        (THIRDS, 24, "bias"),
        (SATURATED, 24, "c1"),
        (BUCKETS, 24, "c1"),
        (TOKENS, 24, "c1"),
        (ROTARY, ROWS, "angles"),
        (OFFSET_ROTARY, ROWS - 2, "angles"),
    ],
)
def test_positions_end_where_a_table_does(nodes: list[NodeProto], most: int, table: str) -> None:
    assert cut(nodes).sources[0] == f"positions=1..{most}, as long as the table '{table}'"


def test_long_tables_of_cosines_are_no_reason_for_as_many_positions() -> None:
    model = Decoder(layers=1, has_mask=True).model()
    table = numpy_helper.from_array(np.zeros((9000, 4), np.float32), "angles")
    model.graph.initializer.append(table)
    # In place of learnt positions.
    (learnt,) = (node for node in model.graph.node if "position_ids" in node.input)
    learnt.op_type, learnt.input[0], learnt.input[1] = "Mul", "c0", "half"
    model.graph.initializer.append(numpy_helper.from_array(CONSTANTS["half"], "half"))
    model.graph.node.append(ROTARY[0])

    def sources(given: OpenShapes) -> str:
        copy = ModelProto.FromString(model.SerializeToString())
        return cut_caches(copy, growing_caches(copy, {}, finds=True), given).sources[0]

    assert sources({}) == "positions=1..2048, the usual bound"
    assert sources({KEY: (1, 2, SizeRange(1, 9000), 8)}) == "positions=1..9000, as given"
    with pytest.raises(UsageError, match="the table 'angles' has rows for 9000"):
        sources({KEY: (1, 2, SizeRange(1, 9001), 8)})


def test_several_positions_a_call_read_as_many_rows() -> None:
    given: dict[str, Any] = {"input_ids": (1, 4), "position_ids": (1, 4)}
    assert cut(OFFSET, given).sources[0].startswith(f"positions=4..{ROWS - 2},")


def test_where_an_index_cannot_be_computed_a_range_has_to_be_given() -> None:
    with pytest.raises(UnsupportedModelError, match=rf"table 'bias' has rows cannot be told; give .*'{KEY}' a range"):
        cut(WAVES)
    assert cut(WAVES, {KEY: (1, 2, SizeRange(1, 9), 8)}).sources[0] == "positions=1..9, as given"


def test_a_range_beyond_a_table_is_refused() -> None:
    with pytest.raises(UsageError, match="caches 7 positions, and the table 'bias' has rows for 6: give them a range"):
        cut(OFFSET, {KEY: (1, 2, SizeRange(1, 7), 8)})
