"""A run while it trains: on a terminal, in a log, in a notebook."""
