"""Weights in blocks of few bits whose rounding errors are compensated on samples of what products read."""
