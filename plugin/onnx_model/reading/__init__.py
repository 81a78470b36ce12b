"""Reading an untrusted ONNX file: every field is checked before it is used."""
