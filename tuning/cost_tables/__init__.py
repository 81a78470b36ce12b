"""From measurements to the selection problem: tables of layers, conversions, fusions and childnets."""
