"""Upgrades ``Scan`` of opset 8, which scans each sequence of a batch by itself."""

from __future__ import annotations

from onnx import GraphProto, NodeProto

from sartor.errors import UnsupportedModelError
from sartor.onnx_model.graphs.emit import Emitter
from sartor.onnx_model.graphs.graph import GraphEditor, attributes, optional_input
from sartor.onnx_model.graphs.walk import describe_node

_WITHOUT_BATCH = 9


def scan_by_sequence(node: NodeProto, editor: GraphEditor, version: int) -> list[NodeProto] | None:
    """The same as a ``Scan`` of each sequence, [steps, …], whose results are put together again; None if it is newer.

    Raises:
        UnsupportedModelError: sequences have lengths of their own, or the number of sequences is not known.
    """
    if version >= _WITHOUT_BATCH:
        return None
    shape = editor.shape(node.input[-1])
    if optional_input(node, 0) or not shape or not shape[0]:
        raise UnsupportedModelError(
            f"{describe_node(node)} of opset 8 scans sequences of a batch by lengths of their own, or as many as are "
            "not known; export the model with opset 17"
        )
    emit, settings = Emitter(editor, node), attributes(node)
    body: GraphProto = settings["body"]
    count, directions = settings["num_scan_inputs"], settings.get("directions")
    results: list[tuple[str, ...]] = []
    for index in range(shape[0]):
        place = emit.constant(index, "sequence", "int64")
        rows = [emit("Gather", name, place, part="sequence", axis=0) for name in node.input[1:]]
        names = tuple("" for _ in node.output)
        options = {"body": body, "num_scan_inputs": count, "scan_input_directions": directions}
        results.append(emit.many("Scan", *rows, part=f"scan{index}" if index else "", outputs=names, **options))
    for position, output in enumerate(node.output):
        if output:
            axis = emit.constant([0], "batch")
            raised = [emit("Unsqueeze", result[position], axis, part="raise") for result in results]
            emit("Concat", *raised, part="batch", output=output, axis=0)
    return emit.nodes
