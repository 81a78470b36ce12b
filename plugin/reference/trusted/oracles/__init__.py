"""What operators mean, for those that ONNX Runtime's CPU provider has no kernel for, or computes in another way."""
