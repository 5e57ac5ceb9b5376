"""Any polopt method as a trainer of TRL: `from polopt.bridges.trl import PoloptTrainer`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from polopt.bridges.trl.trainer import PoloptTrainer as PoloptTrainer

__all__ = ["PoloptTrainer"]


def __getattr__(name: str) -> Any:
    # TRL is imported for training only, not for questions about its capabilities.
    if name != "PoloptTrainer":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from polopt.bridges.trl.trainer import PoloptTrainer
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("trl", "accelerate", "datasets"):
            raise
        raise ModuleNotFoundError('TRL is not installed: pip install "polopt[trl]"', name=error.name) from None
    return PoloptTrainer
