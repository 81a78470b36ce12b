"""MLIR and the compiler: the one door to it, operations, snippets, and the machine as it knows it."""
