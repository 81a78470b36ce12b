"""Matrix products by tensor cores on GPUs of NVIDIA: stages in shared memory, tiles of warps, and their sums."""
