"""IREE's runtime: the one door to it, devices, and tensors in their memory."""
