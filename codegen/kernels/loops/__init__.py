"""How a kernel walks through memory: accesses, tiles, their sizes, workgroups, and what is done elementwise."""
