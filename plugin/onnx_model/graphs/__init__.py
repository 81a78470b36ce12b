"""Looking up and editing ONNX graphs, without ever copying their weights."""
