"""Kernels of sizes that are known only when they run."""
