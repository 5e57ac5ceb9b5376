"""What runs on a Ray cluster: the workers that sample for a learner, episodes, and the runs of a comparison."""
