"""Methods that change what a rollout was worth."""
