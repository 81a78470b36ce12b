"""A network with an open batch and an open number of tokens, for pages about sizes of the call."""

from __future__ import annotations

import numpy as np
from onnx import ModelProto, TensorProto

from tests.plugin.onnx_model.builders import FLOAT, model, node, weights

_WORDS, _WIDTH = 50, 16


def open_encoder() -> ModelProto:
    """Embeddings of ``input_ids``, [batch, sequence], a product with its normalisation, and their softmax."""
    nodes = [
        node("Gather", ["table", "input_ids"], ["embedded"]),
        node("MatMul", ["embedded", "w"], ["product"]),
        node("LayerNormalization", ["product", "scale"], ["normal"], axis=-1),
        node("Softmax", ["normal"], ["y"], axis=-1),
    ]
    constants = {"table": weights(_WORDS, _WIDTH), "w": weights(_WIDTH, _WIDTH, seed=1), "scale": np.ones(_WIDTH, "f")}
    ids = ("input_ids", ("batch", "sequence"), TensorProto.INT64)
    return model(nodes, [ids], [("y", ("batch", "sequence", _WIDTH), FLOAT)], constants)
