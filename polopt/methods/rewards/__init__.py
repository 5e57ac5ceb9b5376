"""Methods that change what rollouts were worth."""
