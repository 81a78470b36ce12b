"""Rewrites of an ONNX model, one per file: each takes a model, edits it in place and names the nodes it changed."""
