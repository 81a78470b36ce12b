"""A fluent builder for ONNX graphs: a tensor's methods append the operators that consume it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto

from benchmarks.networks.distribution import Distribution, Sample, Vector, gelu, hard_sigmoid, sigmoid
from benchmarks.networks.graph import Graph, Shape
from benchmarks.networks.window import Pads, Pair, Window

# The last layer of a residual branch is scaled down, as training leaves it: a sum over many blocks stays small.
RESIDUAL_GAIN = 0.4

# The range of the channels' means in front of activations, relative to their spread. About 0 a deep network is
# chaotic: every layer amplifies rounding by 1.2. Far from 0 its output hardly depends on the input.
_ACTIVE = (-1.0, 2.0)
_CENTRED = (-0.5, 0.5)

# A channel that is almost always 0 keeps this share of the average variance: no statistic is degenerate.
_VARIANCE_FLOOR = 0.02

# Weights amplify what varies within channels, but no further than if it were this share of the mean square:
# averages over an image hardly vary.
_VARIATION_FLOOR = 0.3


def image(graph: Graph, channels: int, height: int, width: int) -> Tensor:
    """Declare the input `input`, `[batch, channels, height, width]`, whose values are taken to be N(0, 1)."""
    shape = (graph.batch, channels, height, width)
    return Tensor(graph, graph.input("input", shape), shape, Distribution.normal(graph.rng("input")))


def parameter(graph: Graph, name: str, shape: Shape, std: float) -> Tensor:
    """Add a parameter that is itself a value of the graph, such as a position embedding."""
    drawn = Distribution.normal(graph.rng(f"{name}.distribution"), std=std)
    return Tensor(graph, graph.parameter(name, graph.draw(name, shape, std)), shape, drawn)


def concat(name: str, tensors: Sequence[Tensor], axis: int = 1) -> Tensor:
    """Append a Concat; along other axes than the channels, the largest tensor's distribution stands for all."""
    first = tensors[0]
    sizes = [tensor.shape[axis] for tensor in tensors]
    shape = (*first.shape[:axis], sum(sizes), *first.shape[axis + 1 :])
    joined = max(tensors, key=lambda tensor: tensor.shape[axis]).distribution
    if axis == first.channel_axis:
        joined = Distribution.stacked([tensor.distribution for tensor in tensors], sizes)
    return first.apply("Concat", name, *tensors[1:], shape=shape, distribution=joined, axis=axis)


@dataclass(frozen=True, eq=False)
class Tensor:
    """A value of the graph with its static shape (images are NCHW) and the distribution of its elements."""

    graph: Graph
    name: str
    shape: Shape
    distribution: Distribution

    @property
    def channel_axis(self) -> int:
        """Return the axis whose elements the rows of the distribution describe."""
        return 1 if len(self.shape) == 4 else len(self.shape) - 1

    def output(self, name: str) -> None:
        """Make this tensor an output of the model under `name`."""
        self.graph.output(self.name, name)

    def apply(
        self,
        op_type: str,
        name: str,
        *operands: Tensor | str,
        shape: Shape | None = None,
        distribution: Distribution | None = None,
        element_type: int = TensorProto.FLOAT,
        **attributes: Any,
    ) -> Tensor:
        """Append any operator with one output; shape and distribution stay the same unless given."""
        inputs = [self.name, *(item if isinstance(item, str) else item.name for item in operands)]
        result = self.shape if shape is None else shape
        made = self.graph.node(op_type, name, inputs, [result], element_type, **attributes)
        return Tensor(self.graph, made[0], result, distribution or self.distribution)

    def constant(self, name: str, values: Any, dtype: type[np.generic] = np.float32) -> str:
        """Add a constant operand and return its name."""
        return self.graph.constant(name, np.asarray(values, dtype=dtype))

    # Layers with weights. Within a channel their output has a standard deviation of 1 or `gain`: He's rule (He et
    # al. 2015, section 2.2) with the input's own variance instead of the one that holds after a ReLU. A bias takes
    # the channel's mean away, as training and batch norm do, and puts it somewhere in a fixed range.

    def conv(
        self,
        name: str,
        channels: int,
        kernel: int | Pair = 1,
        stride: int | Pair = 1,
        pad: int | Pair | Pads = 0,
        *,
        groups: int = 1,
        bias: bool = True,
    ) -> Tensor:
        """Append a convolution to `channels` output channels."""
        batch, inputs, height, width = self.shape
        window = Window.of(kernel, stride, pad)
        inside = window.inside(height, width)
        std = self._weight_std(inputs // groups * inside.sum())
        weight = self.graph.draw(f"{name}.weight", (channels, inputs // groups, *window.kernel), std)
        operands = [self.graph.parameter(f"{name}.weight", weight)]
        grouped = weight.reshape(groups, channels // groups, inputs // groups, window.taps)
        result = self._projected(name, grouped, inside)
        if bias:
            operand, result = self._bias(f"{name}.bias", result, _ACTIVE)
            operands.append(operand)
        shape = (batch, channels, *window.output_size(height, width))
        return self.apply("Conv", name, *operands, shape=shape, distribution=result, group=groups, **window.attributes)

    def gemm(self, name: str, features: int) -> Tensor:
        """Append a fully connected layer on `[batch, inputs]`; the weight is stored `[features, inputs]`."""
        batch, inputs = self.shape
        weight = self.graph.draw(f"{name}.weight", (features, inputs), self._weight_std(inputs))
        operand = self.graph.parameter(f"{name}.weight", weight)
        result = self._projected(name, weight[np.newaxis, :, :, np.newaxis], np.ones(1))
        bias, result = self._bias(f"{name}.bias", result, _ACTIVE)
        return self.apply("Gemm", name, operand, bias, shape=(batch, features), distribution=result, transB=1)

    def linear(self, name: str, features: int, gain: float = 1.0) -> Tensor:
        """Append MatMul and Add on the last axis; the weight is stored `[inputs, features]`."""
        inputs = self.shape[-1]
        with self.graph.scope(name):
            weight = self.graph.draw("weight", (inputs, features), gain * self._weight_std(inputs))
            operand = self.graph.parameter("weight", weight)
            result = self._projected("matmul", weight.T[np.newaxis, :, :, np.newaxis], np.ones(1))
            shape = (*self.shape[:-1], features)
            product = self.apply("MatMul", "matmul", operand, shape=shape, distribution=result)
            bias, result = self._bias("bias", result, _CENTRED, gain)
            return product.apply("Add", "add", bias, distribution=result)

    def batch_norm(self, name: str, *, residual: bool = False, epsilon: float = 1e-5) -> Tensor:
        """Append a BatchNormalization with the statistics of its input; `residual` ends a residual branch."""
        channels = self.shape[1]
        rng = self.graph.rng(name)
        sample = Distribution(self.distribution.rows(channels))
        variance = np.maximum(sample.variance, _VARIANCE_FLOOR * sample.variance.mean())
        variance *= rng.uniform(0.9, 1.1, channels)
        mean = sample.mean + 0.1 * np.sqrt(variance) * rng.standard_normal(channels)
        gain, bounds = (RESIDUAL_GAIN, _CENTRED) if residual else (1.0, _ACTIVE)
        scale = gain * rng.uniform(0.7, 1.3, channels)
        shift = gain * rng.uniform(*bounds, channels)
        values = {"weight": scale, "bias": shift, "running_mean": mean, "running_var": variance}
        operands = [self.graph.parameter(f"{name}.{key}", array) for key, array in values.items()]
        slope = scale / np.sqrt(variance + epsilon)
        folded = sample.affine(slope, shift - mean * slope)
        return self.apply("BatchNormalization", name, *operands, distribution=folded, epsilon=epsilon)

    def layer_norm(self, name: str, epsilon: float) -> Tensor:
        """Append a LayerNormalization over the last axis."""
        features = self.shape[-1]
        rng = self.graph.rng(name)
        scale, shift = rng.uniform(0.7, 1.3, features), rng.uniform(*_CENTRED, features)
        operands = [self.graph.parameter(f"{name}.{key}", value) for key, value in (("weight", scale), ("bias", shift))]
        unit = self.distribution.map(lambda sample: (sample - sample.mean()) / sample.std())
        normed = unit.affine(scale, shift)
        return self.apply("LayerNormalization", name, *operands, distribution=normed, axis=-1, epsilon=epsilon)

    # Activations.

    def relu(self, name: str) -> Tensor:
        """Append a Relu."""
        return self._elementwise("Relu", name, lambda sample: np.maximum(sample, 0))

    def relu6(self, name: str) -> Tensor:
        """Append a Clip to [0, 6]."""
        bounds = [self.constant(f"{name}.{key}", value) for key, value in (("min", 0), ("max", 6))]
        clipped = self.distribution.map(lambda sample: np.clip(sample, 0, 6))
        return self.apply("Clip", name, *bounds, distribution=clipped)

    def tanh(self, name: str) -> Tensor:
        """Append a Tanh."""
        return self._elementwise("Tanh", name, np.tanh)

    def sigmoid(self, name: str) -> Tensor:
        """Append a Sigmoid."""
        return self._elementwise("Sigmoid", name, sigmoid)

    def silu(self, name: str) -> Tensor:
        """Append x * sigmoid(x) as the two operators that exporters write."""
        gate = self.sigmoid(f"{name}.sigmoid")
        activated = self.distribution.map(lambda sample: sample * sigmoid(sample))
        return self.apply("Mul", f"{name}.mul", gate, distribution=activated)

    def hard_sigmoid(self, name: str) -> Tensor:
        """Append a HardSigmoid with MobileNetV3's slope of 1/6."""
        return self._elementwise("HardSigmoid", name, hard_sigmoid, alpha=1 / 6, beta=0.5)

    def hard_swish(self, name: str) -> Tensor:
        """Append a HardSwish."""
        return self._elementwise("HardSwish", name, lambda sample: sample * hard_sigmoid(sample))

    def gelu(self, name: str) -> Tensor:
        """Append the exact GELU, x * (1 + erf(x / √2)) / 2, as the five operators that exporters write."""
        activated = self.distribution.map(gelu)
        with self.graph.scope(name):
            scaled = self.apply("Div", "div", self.constant("sqrt2", math.sqrt(2)))
            raised = scaled.apply("Erf", "erf").apply("Add", "add", self.constant("one", 1))
            product = self.apply("Mul", "mul", raised)
            return product.apply("Mul", "halve", self.constant("half", 0.5), distribution=activated)

    def softmax(self, name: str) -> Tensor:
        """Append a Softmax over the last axis."""
        probabilities = self.distribution.softmax(self.shape[-1])
        return self.apply("Softmax", name, distribution=probabilities, axis=-1)

    # Pooling and normalisation over neighbourhoods.

    def max_pool(self, name: str, kernel: int, stride: int, pad: int | Pads = 0) -> Tensor:
        """Append a MaxPool."""
        window = Window.of(kernel, stride, pad)
        pooled = self.distribution.maximum(window.taps, self.graph.rng(name))
        shape = (*self.shape[:2], *window.output_size(*self.shape[2:]))
        return self.apply("MaxPool", name, shape=shape, distribution=pooled, **window.attributes)

    def average_pool(self, name: str, kernel: int, stride: int, pad: int = 0) -> Tensor:
        """Append an AveragePool that counts padding, as PyTorch's does by default."""
        window = Window.of(kernel, stride, pad)
        inside = float(window.inside(*self.shape[2:]).mean())
        averaged = self._averaged(window.taps).map(lambda sample: sample * inside)
        shape = (*self.shape[:2], *window.output_size(*self.shape[2:]))
        return self.apply(
            "AveragePool", name, shape=shape, distribution=averaged, count_include_pad=1, **window.attributes
        )

    def global_average_pool(self, name: str) -> Tensor:
        """Append a GlobalAveragePool; the result is `[batch, channels, 1, 1]`."""
        averaged = self._averaged(math.prod(self.shape[2:]))
        return self.apply("GlobalAveragePool", name, shape=(*self.shape[:2], 1, 1), distribution=averaged)

    def local_response_norm(self, name: str, bias: float) -> Tensor:
        """Append an LRN over 5 channels with alpha 1e-4 and beta 0.75, which AlexNet and GoogLeNet share."""
        damped = self.distribution.map(lambda sample: sample * bias**-0.75)
        return self.apply("LRN", name, distribution=damped, size=5, alpha=1e-4, beta=0.75, bias=bias)

    # Merging and rearranging.

    def add(self, name: str, other: Tensor) -> Tensor:
        """Append an Add of two tensors."""
        return self._merge("Add", name, other, np.add)

    def mul(self, name: str, other: Tensor) -> Tensor:
        """Append a Mul of two tensors."""
        return self._merge("Mul", name, other, np.multiply)

    def matmul(self, name: str, other: Tensor, distribution: Distribution | None = None) -> Tensor:
        """Append a MatMul of two activations, which are independent unless a distribution is given."""
        rms = math.sqrt(self.shape[-1] * self.distribution.power * other.distribution.power)
        result = distribution or Distribution.normal(self.graph.rng(name), std=rms)
        return self.apply("MatMul", name, other, shape=(*self.shape[:-1], other.shape[-1]), distribution=result)

    def flatten(self, name: str) -> Tensor:
        """Append a Flatten of an image to `[batch, features]`."""
        batch, channels, height, width = self.shape
        repeated = self.distribution.map(lambda sample: np.repeat(sample, height * width, axis=0))
        return self.apply("Flatten", name, shape=(batch, channels * height * width), distribution=repeated, axis=1)

    def reshape(self, name: str, *shape: int, distribution: Distribution | None = None) -> Tensor:
        """Append a Reshape to a static shape; channels lose their identity unless a distribution is given."""
        mixed = distribution or self.distribution.shared(self.graph.rng(name))
        operand = self.constant(f"{name}.shape", shape, np.int64)
        return self.apply("Reshape", name, operand, shape=shape, distribution=mixed)

    def transpose(self, name: str, *permutation: int) -> Tensor:
        """Append a Transpose."""
        shape = tuple(self.shape[axis] for axis in permutation)
        return self.apply("Transpose", name, shape=shape, perm=permutation)

    def split(self, name: str, parts: int, axis: int) -> list[Tensor]:
        """Append a Split into equal parts along `axis`."""
        size = self.shape[axis] // parts
        shape = (*self.shape[:axis], size, *self.shape[axis + 1 :])
        sizes = self.constant(f"{name}.sizes", [size] * parts, np.int64)
        made = self.graph.node("Split", name, [self.name, sizes], [shape] * parts, axis=axis)
        shares = [self.distribution] * parts
        if axis == self.channel_axis:
            shares = [Distribution(rows) for rows in np.split(self.distribution.rows(self.shape[axis]), parts)]
        return [Tensor(self.graph, output, shape, share) for output, share in zip(made, shares, strict=True)]

    def _elementwise(self, op_type: str, name: str, function: Callable[[Sample], Sample], **attributes: Any) -> Tensor:
        return self.apply(op_type, name, distribution=self.distribution.map(function), **attributes)

    def _merge(self, op_type: str, name: str, other: Tensor, function: Callable[[Sample, Sample], Sample]) -> Tensor:
        merged = self.distribution.map(lambda sample: function(sample, other.distribution.sample))
        shape = np.broadcast_shapes(self.shape, other.shape)
        return self.apply(op_type, name, other, shape=shape, distribution=merged)

    def _averaged(self, positions: int) -> Distribution:
        # Neighbours are correlated: measured on these networks, about the square root of their number is independent.
        return self.distribution.averaged(math.sqrt(positions))

    def _weight_std(self, fan_in: float) -> float:
        spread = max(self.distribution.variance.mean(), _VARIATION_FLOOR * self.distribution.power)
        # Six digits: weights must not depend on how a machine's libraries round the last bits of a sum.
        return float(f"{1 / math.sqrt(fan_in * spread):.6g}")

    def _projected(self, name: str, weight: NDArray[np.float32], inside: Vector) -> Distribution:
        rng = self.graph.rng(f"{name}.distribution")
        if not self.graph.has_weights:
            return Distribution.normal(rng, mean=np.zeros(weight.shape[0] * weight.shape[1]))
        return self.distribution.project(weight, inside, rng)

    def _bias(
        self, name: str, result: Distribution, bounds: tuple[float, float], gain: float = 1.0
    ) -> tuple[str, Distribution]:
        values = gain * self.graph.rng(name).uniform(*bounds, len(result.sample)) - result.mean
        return self.graph.parameter(name, values), result.affine(np.ones(len(values)), values)
