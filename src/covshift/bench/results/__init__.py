"""The results of a run: rows on disk, and numbers and tables computed from them."""
