"""Instructions that multiply: vectors, groups of narrow numbers, tiles of AMX."""
