"""One short file per published method. `polopt.catalogue` finds them."""
