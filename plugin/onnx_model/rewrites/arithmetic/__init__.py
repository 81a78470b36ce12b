"""Rewrites of operators that IREE's importer lacks to arithmetic operators that it has."""
