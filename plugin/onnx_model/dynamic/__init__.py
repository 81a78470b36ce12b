"""Values whose shape depends on data, as values of a static upper bound with a count beside them."""
