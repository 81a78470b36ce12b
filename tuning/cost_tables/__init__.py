"""Building the selection problem from measurements: costs of layers, conversions, fusions and childnets."""
