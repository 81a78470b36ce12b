"""How much an untrusted model may ask for. Far above real models of the sizes that are compiled here."""

from __future__ import annotations

# Protobuf cannot hold more in one message, and neither shape inference nor ONNX Runtime takes more.
MAX_MODEL_BYTES = 2**31 - 1
MAX_NODES = 200_000
MAX_FUNCTION_DEPTH = 64
MAX_RANK = 32
MAX_DIMENSION = 2**31 - 1
# One intermediate value; more would not fit any machine the result runs on.
MAX_VALUE_BYTES = 2**34
# What constant folding may add: small results always, larger ones only if they are no larger than what they replace.
MAX_FOLDED_BYTES = 2**16
