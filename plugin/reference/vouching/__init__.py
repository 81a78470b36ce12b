"""Checking rewrites before anything is measured: the prepared model against the user's, which definitions compute."""
