"""One file per published method: the programs that measure what its paper claims. `polopt.catalogue` finds them."""
