"""Edits of code that IREE is about to lower, where its own lowering is slow or wrong."""
