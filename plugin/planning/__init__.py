"""Plans of a whole network: recipes, the selection among them, and what they may err by."""
