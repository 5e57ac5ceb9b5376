"""The published methods, one short file each, with the parts that it alone has; `polopt.catalogue` finds them.

`polopt.methods.bnpo` is loaded when it is first read.
"""

import importlib
from types import ModuleType


def __getattr__(name: str) -> ModuleType:
    if name.startswith("_"):
        raise AttributeError(name)
    try:
        return importlib.import_module(f"{__name__}.{name}")
    except ModuleNotFoundError as error:
        if error.name != f"{__name__}.{name}":
            raise
        raise AttributeError(f"polopt.methods has no method {name!r}") from None
