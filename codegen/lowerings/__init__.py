"""Layers in a form that IREE's own code generator lowers well."""
