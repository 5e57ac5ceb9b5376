"""Training on a Ray cluster: rollout workers of a learner, episodes in actors, and the runs of a comparison."""
