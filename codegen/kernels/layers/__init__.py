"""A layer that is one kernel: its operands in memory, and what routines of kernels have in common."""
