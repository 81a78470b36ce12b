"""Attention as one kernel on GPUs of NVIDIA: two products and the softmax between them."""
