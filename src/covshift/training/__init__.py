"""Training small networks by a recipe."""
