"""Exact products of 8 bits as pairs of 16-bit numbers: strips of the image are widened, and then multiplied."""
