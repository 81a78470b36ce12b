"""NVIDIA's assembler on all kernels: what it says of them, and what they have to have."""
