"""Rewrites of an ONNX model, one per file: each edits the model in place and returns the names of changed nodes."""
