"""Attention as one kernel: two products and the softmax between them, on CPUs and on GPUs of NVIDIA."""
