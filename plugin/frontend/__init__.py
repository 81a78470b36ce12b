"""From an ONNX file to layers, in a worker; and whether the compiler and this machine know the target."""
