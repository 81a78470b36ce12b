"""What each layer of a module may give, from the user's own nodes and the values that the module gave before it."""
