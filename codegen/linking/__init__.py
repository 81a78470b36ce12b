"""The chosen code of all layers as one module: conversions on edges, packed weights, shared memory."""
