"""Methods that decide which tool calls of a policy may run."""
