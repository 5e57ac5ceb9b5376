"""Methods that change which experience is gathered."""
