"""Methods that solve exact problems."""
