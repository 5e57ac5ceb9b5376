"""Methods that measure logged data."""
