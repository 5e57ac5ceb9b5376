"""Third-party scorers, and the worker processes in which they score a model's answers."""
