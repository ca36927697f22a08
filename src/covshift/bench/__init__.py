"""The benchmark: what a model loses under corruptions, and what adapting gives back."""
