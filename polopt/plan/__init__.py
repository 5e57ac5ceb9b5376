"""Estimates of a run's memory, time and cost from a model's config, a machine and a method, without running it."""
