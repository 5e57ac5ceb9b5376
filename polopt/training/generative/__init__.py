"""Training of generative policies on points."""
