"""The engines, which compute the cells of a run."""
