"""Ways to compute a layer: routines, their traits, their variants, and what these round."""
