"""A small convolutional network trained on scikit-learn's handwritten digits, in numpy, always the same."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto
from sklearn.datasets import load_digits

from tests.tiny_models import Builder

Floats = NDArray[np.float32]
Labels = NDArray[np.int64]

_TESTED = 360
_EPOCHS, _BATCH, _RATE = 12, 32, 2e-3
_CHANNELS = (16, 32)


@dataclass(frozen=True)
class Digits:
    """Images of shape 1 x 8 x 8, in the order in which they were shuffled."""

    images: Floats
    labels: Labels

    @staticmethod
    def load() -> tuple[Digits, Digits]:
        """What to train on, and what to test on."""
        data = load_digits()
        order = np.random.default_rng(0).permutation(len(data.target))
        images = (data.images[order] / 16).astype(np.float32)[:, None]
        labels = data.target[order].astype(np.int64)
        train, tested = slice(None, -_TESTED), slice(-_TESTED, None)
        return Digits(images[train], labels[train]), Digits(images[tested], labels[tested])


def trained(data: Digits) -> list[Floats]:
    """Weights and biases of two convolutions, each with ReLU and pooling, and a product: Adam on the cross-entropy."""
    random = np.random.default_rng(1)
    first, second = _CHANNELS
    shapes = [(first, 9), (first,), (second, first * 9), (second,), (10, second * 4), (10,)]
    weights = [
        (random.standard_normal(shape) * (2 / shape[-1]) ** 0.5 * (len(shape) > 1)).astype(np.float32)
        for shape in shapes
    ]
    means, squares = ([np.zeros_like(each) for each in weights] for _ in range(2))
    steps = 0
    for _ in range(_EPOCHS):
        for chosen in np.array_split(random.permutation(len(data.labels)), len(data.labels) // _BATCH):
            steps += 1
            slopes = _slopes(weights, data.images[chosen], data.labels[chosen])
            for weight, slope, mean, square in zip(weights, slopes, means, squares, strict=True):
                mean += 0.1 * (slope - mean)
                square += 0.001 * (slope**2 - square)
                scale = _RATE * (1 - 0.999**steps) ** 0.5 / (1 - 0.9**steps)
                weight -= scale * mean / (np.sqrt(square) + 1e-8)
    return weights


def _slopes(weights: list[Floats], images: Floats, labels: Labels) -> list[Floats]:
    w1, b1, w2, b2, w3, b3 = weights
    patches1 = _patches(images)
    pooled1, mask1 = _pooled(patches1 @ w1.T + b1)
    patches2 = _patches(pooled1.transpose(0, 3, 1, 2))
    pooled2, mask2 = _pooled(patches2 @ w2.T + b2)
    flat = pooled2.transpose(0, 3, 1, 2).reshape(len(images), -1)
    scores = flat @ w3.T + b3
    chances = np.exp(scores - scores.max(axis=1, keepdims=True))
    slope = chances / chances.sum(axis=1, keepdims=True)
    slope[np.arange(len(labels)), labels] -= 1
    slope /= len(labels)
    back = (slope @ w3).reshape(len(images), -1, 2, 2).transpose(0, 2, 3, 1)
    slope2 = _unpooled(back, mask2)
    slope1 = _unpooled(_scattered(slope2 @ w2, w1.shape[0]), mask1)
    return [
        *(np.einsum("nhwo,nhwk->ok", slope1, patches1, optimize=True), slope1.sum(axis=(0, 1, 2))),
        *(np.einsum("nhwo,nhwk->ok", slope2, patches2, optimize=True), slope2.sum(axis=(0, 1, 2))),
        *(slope.T @ flat, slope.sum(axis=0)),
    ]


def _patches(images: Floats) -> Floats:
    """Neighbourhoods of 3 x 3: N x H x W x 9C."""
    padded = np.pad(images, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
    return np.ascontiguousarray(windows.transpose(0, 2, 3, 1, 4, 5)).reshape(*windows.shape[0:1], *images.shape[2:], -1)


def _scattered(patches: Floats, channels: int) -> Floats:
    """What goes back through neighbourhoods: N x H x W x C."""
    count, rows, columns, _ = patches.shape
    spread = patches.reshape(count, rows, columns, channels, 3, 3)
    padded = np.zeros((count, rows + 2, columns + 2, channels), np.float32)
    for row in range(3):
        for column in range(3):
            padded[:, row : row + rows, column : column + columns] += spread[..., row, column]
    return padded[:, 1:-1, 1:-1]


def _pooled(values: Floats) -> tuple[Floats, NDArray[np.bool_]]:
    """ReLU and the largest of 2 x 2, and where it was."""
    count, rows, columns, channels = values.shape
    blocks = values.reshape(count, rows // 2, 2, columns // 2, 2, channels)
    largest = blocks.max(axis=(2, 4), keepdims=True)
    mask = (blocks == largest) & (largest > 0)
    return np.maximum(largest[:, :, 0, :, 0], 0), mask


def _unpooled(slope: Floats, mask: NDArray[np.bool_]) -> Floats:
    count, rows, _, columns, _, channels = mask.shape
    return (slope[:, :, None, :, None] * mask).reshape(count, 2 * rows, 2 * columns, channels)


def digits_model(weights: list[Floats]) -> ModelProto:
    """The trained network for one image: ``image`` to ten ``scores``."""
    w1, b1, w2, b2, w3, b3 = weights
    first, second = _CHANNELS
    b = Builder()
    value = "image"
    for name, weight, bias in (("1", w1.reshape(first, 1, 3, 3), b1), ("2", w2.reshape(second, first, 3, 3), b2)):
        conv = b.op("Conv", f"conv{name}", value, b.constant(weight), b.constant(bias), pads=[1] * 4)
        active = b.op("Relu", f"relu{name}", conv)
        value = b.op("MaxPool", f"pool{name}", active, kernel_shape=[2, 2], strides=[2, 2])
    b.op("Gemm", "scores", b.op("Flatten", "flat", value), b.constant(w3), b.constant(b3), transB=1)
    return b.model([("image", (1, 1, 8, 8))], [("scores", (1, 10))])
