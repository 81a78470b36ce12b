"""Finding the best plan: measuring variants, cost tables, search and selection."""
