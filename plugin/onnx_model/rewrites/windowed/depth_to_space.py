"""DepthToSpace in mode CRD, as pixel shuffling of super-resolution networks is exported."""

from __future__ import annotations

from onnx import NodeProto

from sartor.onnx_model.graphs.emit import Emitter
from sartor.onnx_model.graphs.graph import GraphEditor, attributes, node_rewrite

# From channel, block row, block column, row, column to channel, row, block row, column, block column.
_ORDER = [0, 1, 4, 2, 5, 3]


@node_rewrite("DepthToSpace")
def transposed_blocks(node: NodeProto, editor: GraphEditor) -> list[NodeProto] | None:
    """Write DepthToSpace in mode CRD as a transposition.

    IREE 3.13 reads channels as block row, block column, channel, which is wrong unless there are as many output
    channels as rows in a block.
    """
    if attributes(node).get("mode", b"DCR") != "CRD":
        return None
    shape, block = editor.shape(node.input[0]), int(attributes(node)["blocksize"])
    if shape is None:
        return None
    batch, channels, rows, columns = shape
    depth = channels // (block * block)
    emit = Emitter(editor, node)
    split = emit.constant([batch, depth, block, block, rows, columns], "split")
    joined = emit.constant([batch, depth, rows * block, columns * block], "joined")
    blocks = emit("Reshape", node.input[0], split, part="split")
    emit("Reshape", emit("Transpose", blocks, perm=_ORDER), joined, part="joined", output=node.output[0])
    return emit.nodes
