"""Tools for developers: rules about the source, and fuzzing."""
