"""Rollouts from many processes: workers on a Ray cluster sample, one learner learns."""
