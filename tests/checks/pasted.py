"""Running an example as if it had been pasted into a fresh Python."""

from __future__ import annotations

import torch


def error_of(example: str) -> Exception | None:
    """What the lines end in."""
    dtype = torch.get_default_dtype()
    try:
        exec(compile(example, "example", "exec"), {"__name__": "pasted"})
    except Exception as error:
        return error
    finally:
        torch.set_default_dtype(dtype)
    return None
