"""Networks of Keras 3 that it exported itself, from the backend that the environment variable KERAS_BACKEND names."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import keras
import onnx
from keras import layers


def files(work: Path) -> Iterator[tuple[str, onnx.ModelProto]]:
    """Names and models."""
    keras.utils.set_random_seed(0)
    for name, network in {"images": _images(), "steps": _steps()}.items():
        path = work / f"{name}.onnx"
        network(keras.ops.zeros(network.input.shape))
        network.export(str(path), format="onnx", verbose=False)
        yield f"keras_{keras.backend.backend()}_{name}", onnx.load_model(path)


def _images() -> keras.Model:
    """Convolutions with channels last, depthwise and transposed, and a product."""
    given = keras.Input((8, 8, 3), batch_size=2)
    value = layers.Conv2D(8, 3, strides=2, padding="same", activation="relu")(given)
    value = layers.BatchNormalization()(layers.DepthwiseConv2D(3, padding="same")(value))
    value = layers.Conv2DTranspose(4, 2, strides=2)(layers.Activation("hard_swish")(value))
    return keras.Model(given, layers.Dense(5, activation="softmax")(layers.GlobalAveragePooling2D()(value)))


def _steps() -> keras.Model:
    """Two recurrences over an embedding."""
    given = keras.Input((6,), batch_size=2, dtype="int32")
    value = layers.LSTM(8, return_sequences=True)(layers.Embedding(20, 8)(given))
    return keras.Model(given, layers.Dense(3)(layers.GRU(8)(value)))
