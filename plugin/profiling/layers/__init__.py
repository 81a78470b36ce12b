"""Times of layers within whole networks: by IREE's statistics of dispatches, or by running the networks' beginnings."""
