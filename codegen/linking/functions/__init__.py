"""Functions of a network's modules: entries, beginnings of the network, parts of long functions, and inputs as lent."""
