"""Methods that change which rollouts are bought, and which of them are learned from."""
