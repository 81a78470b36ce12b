"""Dispatches that are formed before IREE forms its own, with tile sizes of ours: a layer's root and what follows it."""
