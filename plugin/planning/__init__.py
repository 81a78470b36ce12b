"""Plans of whole networks: recipes, their selection, and the prediction and limits of their errors."""
