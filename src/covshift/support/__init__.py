"""Helpers that every room may use, and that use none of the rooms."""
