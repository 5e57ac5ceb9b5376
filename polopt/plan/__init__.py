"""What a run will take, on paper: memory, time and cost, from a model's config, a machine and a method."""
