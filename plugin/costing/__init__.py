"""Costs of a model's layers: candidates, their times within the time budget, and ONNX Runtime's reference results."""
