"""LeNet-5 (LeCun, Bottou, Bengio, Haffner 1998, section II.B)."""

from __future__ import annotations

from benchmarks.networks.builder import image
from benchmarks.networks.graph import Graph


def lenet5(graph: Graph) -> None:
    """Input `[batch, 1, 32, 32]`, output `logits` `[batch, 10]`.

    As commonly rebuilt: C3 sees all maps of S2, subsampling has no coefficients, and a linear layer takes the
    place of the radial basis functions.
    """
    x = image(graph, 1, 32, 32)
    x = x.conv("c1", 6, 5).tanh("tanh1").average_pool("s2", 2, 2)
    x = x.conv("c3", 16, 5).tanh("tanh3").average_pool("s4", 2, 2)
    x = x.conv("c5", 120, 5).tanh("tanh5").flatten("flatten")
    x.gemm("f6", 84).tanh("tanh6").gemm("output", 10).output("logits")
