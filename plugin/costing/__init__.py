"""What the layers of a model cost: candidates, measured within limits and checked against ONNX Runtime."""
