"""Tiny models with sequences and optionals whose elements are known once inputs have static shapes."""

from __future__ import annotations

import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto, helper

from tests.plugin.onnx_model.builders import FLOAT, INT64, Cases, Value, ints, model, node

SEQUENCE_CASES = Cases()
_PAIR: list[Value] = [("a", (2, 3), FLOAT), ("b", (2, 3), FLOAT)]

# Positions from both ends; elements that are erased are read by nobody.
SEQUENCE_CASES.add(
    "sequence_inserted_and_erased",
    [
        node("SequenceEmpty", [], ["empty"]),
        node("SequenceInsert", ["empty", "a"], ["one"], name="append"),
        node("SequenceInsert", ["one", "b", "before_last"], ["two"], name="before"),
        node("SequenceInsert", ["two", "a", "end"], ["three"], name="end"),
        node("Identity", ["three"], ["same"]),
        node("SequenceErase", ["same", "before_last"], ["rest"]),
        node("SequenceAt", ["rest", "before_last"], ["last"]),
        node("SequenceLength", ["rest"], ["count"]),
        node("Cast", ["count"], ["float_count"], to=FLOAT),
        node("Mul", ["last", "float_count"], ["y"]),
    ],
    _PAIR,
    ["y"],
    {"before_last": np.int64(-1), "end": np.int64(2)},
)
for new_axis in (0, 1):
    for axis in (-1, 0):
        SEQUENCE_CASES.add(
            f"sequence_concat_{new_axis}_{axis}",
            [
                node("SequenceConstruct", ["a", "b"], ["s"]),
                node("ConcatFromSequence", ["s"], ["y"], axis=axis, new_axis=new_axis),
            ],
            _PAIR,
            ["y"],
            opset=12,
        )
for name, split in (("chunks", np.int64(2)), ("sizes", ints(1, 0, 4)), ("ones", None)):
    SEQUENCE_CASES.add(
        f"split_to_sequence_{name}",
        [
            node("SplitToSequence", ["x", "split"] if split is not None else ["x"], ["s"], axis=1),
            node("SequenceAt", ["s", "last"], ["at"]),
            node("ConcatFromSequence", ["s"], ["all"], axis=1),
            node("Sub", ["all", "at"] if split is None else ["all", "all"], ["y"]),
        ],
        [("x", (2, 5), FLOAT)],
        ["y", "at"],
        {"last": np.int64(-1), **({} if split is None else {"split": split})},
    )
SEQUENCE_CASES.add(
    "split_to_sequence_without_the_axis",
    [
        node("SplitToSequence", ["x"], ["s"], axis=-1, keepdims=0),
        node("SequenceAt", ["s", "third"], ["y"]),
    ],
    [("x", (2, 5), FLOAT)],
    ["y"],
    {"third": np.int64(2)},
)
SEQUENCE_CASES.add(
    "optional_content",
    [
        node("Optional", ["x"], ["some"]),
        node("OptionalHasElement", ["some"], ["has"]),
        node("OptionalGetElement", ["some"], ["content"]),
        node("Where", ["has", "content", "zero"], ["y"]),
    ],
    [("x", (2, 5), FLOAT)],
    ["y"],
    {"zero": np.float32(0)},
)


def _graph(name: str, nodes: list[NodeProto], inputs: list[str], outputs: list[str]) -> GraphProto:
    def described(value: str) -> ValueInfoProto:
        if value.startswith("s"):
            return helper.make_tensor_sequence_value_info(value, FLOAT, None)
        kind = {"i": INT64, "c": TensorProto.BOOL}.get(value[0], FLOAT)
        return helper.make_tensor_value_info(value, kind, [] if value[0] in "ic" else None)

    return helper.make_graph(
        nodes, name, [described(each) for each in inputs], [described(output) for output in outputs]
    )


def _map() -> ModelProto:
    body = _graph("body", [node("Add", ["e", "f"], ["g"]), node("Neg", ["g"], ["h"])], ["e", "f"], ["g", "h"])
    nodes = [
        node("SequenceConstruct", ["a", "b"], ["s"]),
        node("SequenceMap", ["s", "a"], ["t", "u"], body=body),
        node("ConcatFromSequence", ["t"], ["y"], name="sums", axis=0),
        node("ConcatFromSequence", ["u"], ["z"], name="signs", axis=0),
    ]
    return model(nodes, _PAIR, ["y", "z"])


def _appending_loop() -> ModelProto:
    """As exporters write a list that grows."""
    body = _graph(
        "body",
        [
            node("Identity", ["c"], ["c_out"], name="go_on"),
            node("Gather", ["x", "i"], ["row"], name="row"),
            node("SequenceInsert", ["s", "row"], ["s_out"]),
        ],
        ["i", "c", "s"],
        ["c_out", "s_out"],
    )
    nodes = [
        node("SequenceEmpty", [], ["empty"]),
        node("Loop", ["three", "", "empty"], ["rows"], body=body),
        node("ConcatFromSequence", ["rows"], ["y"], axis=0, new_axis=1),
    ]
    return model(nodes, [("x", (4, 5), FLOAT)], ["y"], {"three": np.int64(3)})


def _stacking_loop() -> ModelProto:
    """Of an opset in which axes of Unsqueeze are an attribute."""
    body = _graph(
        "body",
        [node("Identity", ["c"], ["c_out"], name="go_on"), node("Gather", ["x", "i"], ["row"], name="row")],
        ["i", "c"],
        ["c_out", "row"],
    )
    return model(
        [node("Loop", ["three", ""], ["y"], body=body)], [("x", (4, 5), FLOAT)], ["y"], {"three": np.int64(3)}, 11
    )


SEQUENCE_CASES["sequence_map"] = _map
SEQUENCE_CASES["loop_that_appends"] = _appending_loop
SEQUENCE_CASES["loop_that_stacks_in_opset_11"] = _stacking_loop
