"""How wrong a network's outputs are: the measure, and how the errors of its layers add up."""
