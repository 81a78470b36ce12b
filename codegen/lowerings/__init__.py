"""Layers rewritten such that IREE's own code generator lowers them well."""
