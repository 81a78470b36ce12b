"""The ONNX front end: from a file to a checked, self-contained model that the importer takes."""
