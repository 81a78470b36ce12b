"""Building blocks that several families share."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.networks.builder import Tensor

Activation = Callable[[Tensor, str], Tensor]


def divisible(channels: float, divisor: int = 8) -> int:
    """Round a channel count to a multiple of `divisor`, losing at most a tenth (Sandler et al. 2018)."""
    rounded = max(divisor, int(channels + divisor / 2) // divisor * divisor)
    return rounded + divisor if rounded < 0.9 * channels else rounded


def squeeze_excite(x: Tensor, squeezed: int, activation: Activation, gate: Activation) -> Tensor:
    """Scale the channels by a gate computed from their averages (Hu et al. 2018, section 3)."""
    weights = x.global_average_pool("squeeze").conv("fc1", squeezed)
    weights = activation(weights, "activation").conv("fc2", x.shape[1])
    return x.mul("scale", gate(weights, "gate"))


def classify(x: Tensor, pool: str = "avgpool", classifier: str = "fc", classes: int = 1000) -> None:
    """Append global average pooling and a linear classifier, and make its result the output `logits`."""
    x.global_average_pool(pool).flatten("flatten").gemm(classifier, classes).output("logits")
