"""Answers which layers of a frozen BERT to use as features: a harness for layer-selection experiments.

Its functions are those of `probe.api`, which is imported when one of them is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from probe.api import choose, features, load, results, run, screen, sweep, word_vectors

__version__ = "0.1.0"
__all__ = ["choose", "features", "load", "results", "run", "screen", "sweep", "word_vectors"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'probe' has no attribute {name!r}")
    from probe import api

    return getattr(api, name)


def __dir__() -> list[str]:
    """Lists the functions too, so that `help(probe)` and completion show them."""
    return [*globals(), *__all__]
