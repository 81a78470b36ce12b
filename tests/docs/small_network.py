"""The network that stands for a reader's own: small, as pages' commands tune it many times."""

from __future__ import annotations

from onnx import ModelProto

from tests.tiny_models import Builder


def small_network() -> ModelProto:
    """Input ``input`` of an image of 32x32 in grey, output ``logits``: a convolution and a product."""
    build = Builder()
    build.op("Relu", "relu1", build.conv("conv1", "input", (1, 8), kernel=5, strides=[4, 4]))
    build.op("Gemm", "logits", build.op("Flatten", "flatten", "relu1"), build.weight(512, 10), build.weight(10))
    return build.model([("input", (1, 1, 32, 32))], [("logits", (1, 10))])
