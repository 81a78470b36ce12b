"""Refuses attributes out of any operator's range, by which ONNX's and IREE's own code crashes or does not end."""

from __future__ import annotations

from onnx import AttributeProto, NodeProto

from sartor.errors import UnsupportedModelError
from sartor.onnx_model.graphs.limits import MAX_DIMENSION, MAX_RANK
from sartor.onnx_model.graphs.walk import describe_node

# Values of tensors, words of a vocabulary, and ends of a Slice, which stand for "to the end" if they are very large.
_ANY = frozenset({"Constant", "Slice", "TfIdfVectorizer"})
# In other domains integers may be data, such as the keys of ai.onnx.ml's LabelEncoder.
_DOMAINS = ("", "ai.onnx")
_AXES = frozenset({"axis", "axes"})
_COUNTS = frozenset({"group", "groups", "num_groups", "blocksize", "hidden_size"})


def check_attribute_ranges(node: NodeProto) -> None:
    """Check the integers among a node's attributes.

    Raises:
        UnsupportedModelError: one is out of range; the message names the node and the attribute.
    """
    if node.domain not in _DOMAINS or node.op_type in _ANY:
        return
    for attribute in node.attribute:
        # In a function, the value comes from the call.
        values = () if attribute.ref_attr_name else _integers(attribute)
        least, most = _range(attribute.name)
        for value in values:
            if not least <= value <= most:
                raise UnsupportedModelError(
                    f"{describe_node(node)} has {value} as its attribute '{attribute.name}', which may be {least} to "
                    f"{most}; export the model again"
                )


def _integers(attribute: AttributeProto) -> list[int]:
    return [attribute.i] if attribute.type == AttributeProto.INT else list(attribute.ints)


def _range(name: str) -> tuple[int, int]:
    if name in _AXES:
        return -MAX_RANK, MAX_RANK
    return (1 if name in _COUNTS else -MAX_DIMENSION), MAX_DIMENSION
