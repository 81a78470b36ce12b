"""Loading an ONNX file and rewriting it to a checked, self-contained model that IREE's importer accepts."""
