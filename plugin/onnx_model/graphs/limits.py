"""Limits on the size of an untrusted model, far above the sizes of real models."""

from __future__ import annotations

# Protobuf's limit for one message, which shape inference and ONNX Runtime share.
MAX_MODEL_BYTES = 2**31 - 1
# Of data beside a model, which no message holds.
MAX_EXTERNAL_BYTES = 2**36
MAX_NODES = 200_000
MAX_FUNCTION_DEPTH = 64
# Bodies within bodies. Each adds three messages to the hundred that protobuf lets lie within one another.
MAX_NESTING = 30
MAX_RANK = 32
MAX_DIMENSION = 2**31 - 1
# Largest intermediate value.
MAX_VALUE_BYTES = 2**34
# Constant folding may add results up to this size, and larger results only if they are no larger than the constants
# that they replace.
MAX_FOLDED_BYTES = 2**16
