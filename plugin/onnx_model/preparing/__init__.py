"""From a loaded model to one that the importer takes: shapes, rewrites, simplification, in order."""
