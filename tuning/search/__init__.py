"""Search for fast variants: an analytic model of cycles, a learned cost model, and rounds of measuring."""
