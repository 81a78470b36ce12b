"""From an ONNX file to a checked, self-contained model that the importer takes."""
