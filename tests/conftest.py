"""One thread per worker, and the shapes that polopt.ops annotates checked at every call."""

import torch
from jaxtyping import install_import_hook

# Before anything imports polopt.
install_import_hook("polopt.ops", "beartype.beartype")
torch.set_num_threads(1)
