"""Models run by what is trusted, so that results can be checked by it: ONNX Runtime, set to be exact."""
