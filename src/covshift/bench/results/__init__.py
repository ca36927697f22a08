"""What a run has found: rows on disk, and numbers and tables made of them."""
