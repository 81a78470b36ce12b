"""A kernel's loops: accesses to memory, tiles and their sizes, workgroups, and elementwise ops."""
