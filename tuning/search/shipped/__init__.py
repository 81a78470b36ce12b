"""Measured times of variants of other networks, which are part of the package: a first tune need not begin blind.

They are transferred, not trusted: they train the cost model that chooses what is measured here. They are kept as
samples and not as a trained model, so they do not depend on the cost model's features, and the user's own measurements
join them.
"""
