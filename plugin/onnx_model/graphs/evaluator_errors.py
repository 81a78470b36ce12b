"""What ONNX's evaluator in Python raises for operands that it does not support: it has no error class of its own."""

from __future__ import annotations

EVALUATOR_ERRORS = (
    *(ArithmeticError, AssertionError, AttributeError, IndexError, KeyError),
    *(NotImplementedError, RuntimeError, TypeError, ValueError),
)
