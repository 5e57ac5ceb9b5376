"""The published methods, one short file each; `polopt.catalogue` finds them."""
