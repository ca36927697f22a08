"""Following a camera: the policy `Live`, and what it knows of the order of its stream."""
