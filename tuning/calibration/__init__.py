"""From samples of a tensor's values to its 8-bit form, one way per file."""
