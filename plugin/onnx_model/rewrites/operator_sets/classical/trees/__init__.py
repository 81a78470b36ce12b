"""Ensembles of decision trees as tensor programs: walks by look-ups, or products with the trees' paths."""
