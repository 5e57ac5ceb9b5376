"""Methods that change what rollouts are worth."""
