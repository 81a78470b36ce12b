"""Makes the files in tests/library_files, each library in an environment of its own."""
