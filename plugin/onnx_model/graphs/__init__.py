"""Lookups in ONNX graphs and edits of them, without copying their weights."""
