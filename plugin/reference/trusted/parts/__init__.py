"""Models that ONNX Runtime cannot run whole, computed in parts: runs of nodes by it, single nodes by definitions."""
