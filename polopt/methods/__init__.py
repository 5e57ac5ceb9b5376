"""One short file per published method, by family. `polopt.catalogue` finds them."""
