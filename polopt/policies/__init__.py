"""Policies: language models, mixtures of tokens and small networks, which make decisions with known probabilities."""
