"""Types and shapes of ONNX Runtime's own operators, as ONNX's inference asks for them."""
