"""Measured times of variants of other networks, which are part of the package: a first tune need not begin blind.

They are transferred, not trusted: they train the cost model that chooses what is measured here. They are kept as
samples, which the user's own measurements join, and beside them as the model that is trained on them alone.
"""
