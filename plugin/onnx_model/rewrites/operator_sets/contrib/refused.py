"""Reasons for refusing operators of other domains than the standard, with ways out."""

from __future__ import annotations

from collections.abc import Mapping

_PAST = (
    "keeps keys and values of earlier steps in a buffer that grows; export the model without a cache, as an encoder or "
    "for a prompt of fixed length"
)
_SEARCH = "runs a decoder an unknown number of times; export the decoder as a model of its own, and search outside"
_STRINGS = "works on strings; compute its result outside, and make it an input of the model"

CONTRIB_REASONS: Mapping[str, str] = {
    **dict.fromkeys(
        (
            *("DecoderAttention", "DecoderMaskedSelfAttention"),
            *("PagedAttention", "SparseAttention", "SparsePagedAttention"),
        ),
        _PAST,
    ),
    **dict.fromkeys(("BeamSearch", "GreedySearch", "Sampling", "WhisperBeamSearch"), _SEARCH),
    **dict.fromkeys(("MurmurHash3", "Tokenizer"), _STRINGS),
    "Unique": "returns as many elements as the data contain; end the model before it, and compute it outside",
}
"""ONNX Runtime's operators that are refused for a reason of their own."""

_LAYOUT = (
    "was laid out for one kind of processor by ONNX Runtime's optimiser; save the optimised model with "
    "ORT_ENABLE_EXTENDED, or take the model from before"
)
_PYTORCH = "calls a function of PyTorch, which ONNX does not define; export the model with newer PyTorch and opset 17"

DOMAIN_REASONS: Mapping[str, str] = {
    "com.ms.internal.nhwc": _LAYOUT,
    **dict.fromkeys(("aten", "org.pytorch.aten", "prim", "pkg.torch.ops"), _PYTORCH),
    "ai.onnx.contrib": (
        "belongs to onnxruntime-extensions, which prepares data before or after a network; do that outside, and export "
        "the network alone"
    ),
}
"""Operator sets that are refused for a reason of their own."""
