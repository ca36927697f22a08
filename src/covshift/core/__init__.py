"""Statistics of a model: measured, mixed with the source, and put back."""
