"""How wrong a network's outputs are: the measure, how the errors of its layers add up, and what is allowed."""
