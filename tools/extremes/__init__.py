"""Every operator of one or two operands, in every number type, at the values where such types end."""
