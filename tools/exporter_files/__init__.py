"""Makes the files in tests/exporter_files, in an environment of its own."""
