"""Which variants are worth measuring: a model of cycles, one that learns, and rounds of measuring by them."""
