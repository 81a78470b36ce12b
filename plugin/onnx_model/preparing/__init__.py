"""Preparing a loaded model for import: binding shapes, rewriting and simplifying, in a fixed order."""
