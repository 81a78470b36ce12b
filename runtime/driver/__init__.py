"""The only access to IREE's runtime, and to files that users name: devices, programs, tensors in device memory."""
