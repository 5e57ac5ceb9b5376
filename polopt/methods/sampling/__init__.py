"""Which tasks, how many rollouts, how they begin, and what is kept of them."""
