"""Lowers ``LabelEncoder`` from numbers to numbers to a search among its keys."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
from onnx import NodeProto, TensorProto

from sartor.errors import UnsupportedModelError
from sartor.onnx_model.graphs.emit import Emitter
from sartor.onnx_model.graphs.graph import Array, GraphEditor, attributes
from sartor.onnx_model.graphs.tensor_data import to_array
from sartor.onnx_model.graphs.walk import describe_node
from sartor.onnx_model.rewrites.number_types.quantized import Lowering

# The end of an attribute's name says the type of what it lists.
_TYPES: Mapping[str, Any] = {"int64": np.int64, "float": np.float32}
_DEFAULTS: Mapping[str, float] = {"int64": -1, "float": -0.0}


_FINDS_NAN = 4
"""The first version of ai.onnx.ml whose LabelEncoder takes NaN for equal to NaN; before, it never is."""


def label_encoder(version: int) -> Mapping[str, Lowering]:
    """The lowering of a version of ai.onnx.ml, by the operator's name."""
    return {"LabelEncoder": partial(_looked_up, finds_nan=version >= _FINDS_NAN)}


def _looked_up(node: NodeProto, editor: GraphEditor, *, finds_nan: bool) -> list[NodeProto] | None:
    """The value of the first key that equals each element, or the default.

    A sum over all keys, of which at most one is equal, would lose the sign of zero and infinities: so the place of the
    key is searched.
    """
    rank, settings = editor.rank(node.input[0]), attributes(node)
    if rank is None:
        return None
    if (texts := editor.constant(node.input[0])) is not None and texts.dtype == object:
        return _of_texts(node, editor, texts)
    keys, values = _listed(node, settings, "keys"), _listed(node, settings, "values")
    if len(keys) != len(values) or not len(keys):
        raise UnsupportedModelError(
            f"{describe_node(node)} has {len(keys)} keys and {len(values)} values, of which as many were expected; "
            "convert the model again"
        )
    emit = Emitter(editor, node)
    table = emit.constant(np.append(values, np.asarray([_default(settings, values)], values.dtype)), "values")
    value = emit("Unsqueeze", node.input[0], emit.constant([-1], "axis"), part="raise")
    is_it = emit("Equal", value, emit.constant(keys, "keys"), part="equal")
    if finds_nan and keys.dtype.kind == "f" and np.isnan(keys).any():
        both = emit("And", emit("IsNaN", value, part="nan"), emit.constant(np.isnan(keys), "nan_keys"), part="both_nan")
        is_it = emit("Or", is_it, both, part="equal_or_nan")
    flags = emit("Cast", is_it, part="flags", to=TensorProto.INT32)
    # The place behind all keys, which is the default's, is the first of the largest flags if no key is equal.
    pads = emit.constant([0] * (2 * rank + 1) + [1], "pads")
    flags = emit("Pad", flags, pads, emit.constant(np.asarray(1, np.int32), "last"), part="with_default")
    place = emit("ArgMax", flags, part="place", axis=rank, keepdims=0)
    emit("Gather", table, place, output=node.output[0], axis=0)
    return emit.nodes


def _of_texts(node: NodeProto, editor: GraphEditor, texts: Array) -> list[NodeProto]:
    """What known texts are encoded as, a constant."""
    settings, emit = attributes(node), Emitter(editor, node)
    keys = settings.get("keys_strings") or [_text(key) for key in to_array(settings["keys_tensor"]).reshape(-1)]
    values = _listed(node, settings, "values")
    table, default = dict(zip(reversed(keys), reversed(values), strict=True)), _default(settings, values)
    encoded = [table.get(_text(text), default) for text in texts.reshape(-1)]
    name = emit.constant(np.asarray(encoded, values.dtype).reshape(texts.shape), "encoded")
    emit("Identity", name, output=node.output[0])
    return emit.nodes


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _listed(node: NodeProto, settings: Mapping[str, Any], name: str) -> Array:
    """The keys or values of a node, a vector of numbers."""
    for kind, dtype in _TYPES.items():
        if f"{name}_{kind}s" in settings:
            return np.asarray(settings[f"{name}_{kind}s"], dtype)
    tensor = settings.get(f"{name}_tensor")
    if tensor is None or tensor.data_type == TensorProto.STRING:
        raise UnsupportedModelError(
            f"{describe_node(node)} has texts as its {name}, and modules compute with numbers only; encode them "
            "outside, or cut the model between its tensors of numbers by onnx.utils.extract_model"
        )
    return to_array(tensor).reshape(-1)


def _default(settings: Mapping[str, Any], values: Array) -> Any:
    """What stands for keys that are not listed."""
    tensor = settings.get("default_tensor")
    if tensor is not None:
        return to_array(tensor).reshape(-1)[0]
    kind = "int64" if values.dtype.kind == "i" else "float"
    return settings.get(f"default_{kind}", _DEFAULTS[kind])
