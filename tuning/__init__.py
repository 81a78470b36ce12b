"""From measurements to the best plan: measuring, cost tables, search and selection."""
