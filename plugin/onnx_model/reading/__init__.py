"""Reading an untrusted ONNX file: nothing is believed before it is checked."""
