"""The only access to IREE's runtime: devices, programs, and tensors in device memory."""
