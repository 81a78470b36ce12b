"""Makes the files in tests/classical_files, in an environment of its own."""
