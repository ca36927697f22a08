"""Passes on the CPU by compiled code: what happens at a place, in one call that reads its activations once."""
