"""Scorers that are not polopt's own, and the worker processes in which they judge a model's answers."""
