"""What is right: drawn inputs, ONNX Runtime's outputs on them, and how far a right module may be from these."""
