"""The reference: random inputs, ONNX Runtime's outputs on them, and the errors that a right module may have."""
