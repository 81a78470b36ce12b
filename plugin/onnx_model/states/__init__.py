"""States of a model by their names, and caches that grow, which are taken out of its graph."""
