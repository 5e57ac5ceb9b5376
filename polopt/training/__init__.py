"""Training: recipes, sources of experience, the learner and its loop, evaluation, and runs on disk."""
