"""Importing an ONNX file as layers, in a worker, and checking that compiler and machine support the target."""
