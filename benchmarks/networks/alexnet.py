"""AlexNet (Krizhevsky, Sutskever, Hinton 2012, section 3)."""

from __future__ import annotations

from benchmarks.networks.builder import image
from benchmarks.networks.graph import Graph


def alexnet(graph: Graph) -> None:
    """Input `[batch, 3, 224, 224]`, output `logits` `[batch, 1000]`.

    The two halves that the paper ran on two GPUs are grouped convolutions. Padding the first layer by 2 gives
    the paper's 55 x 55 maps.
    """
    x = image(graph, 3, 224, 224)
    x = x.conv("conv1", 96, 11, stride=4, pad=2).relu("relu1")
    x = x.local_response_norm("norm1", bias=2.0).max_pool("pool1", 3, 2)
    x = x.conv("conv2", 256, 5, pad=2, groups=2).relu("relu2")
    x = x.local_response_norm("norm2", bias=2.0).max_pool("pool2", 3, 2)
    x = x.conv("conv3", 384, 3, pad=1).relu("relu3")
    x = x.conv("conv4", 384, 3, pad=1, groups=2).relu("relu4")
    x = x.conv("conv5", 256, 3, pad=1, groups=2).relu("relu5").max_pool("pool5", 3, 2)
    x = x.flatten("flatten").gemm("fc6", 4096).relu("relu6")
    x.gemm("fc7", 4096).relu("relu7").gemm("fc8", 1000).output("logits")
