"""The architectures of the benchmark networks, one file per family, written on a small ONNX graph builder."""
