"""Pictures on disk, held against those that the records give."""

from __future__ import annotations

import io
import re

import matplotlib
import numpy as np
from matplotlib.image import imread


def figure_differs(stored: bytes, drawn: bytes, numbers_sha256: str) -> str | None:
    """What is wrong with a picture on disk, given the one drawn from the records; None if nothing is.

    Another matplotlib draws other bytes: then only the sha256 of the numbers is compared. With the same one, only the
    compression of a PNG may differ, not its pixels.
    """
    if stored == drawn:
        return None
    named = re.search(rb"numbers sha256 ([0-9a-f]{64})", stored)
    if named is None or named.group(1).decode() != numbers_sha256:
        return "drawn from other numbers than the records give; `probe report` draws it anew"
    drawn_by = re.search(rb"Matplotlib (?:version|v)?\s?([0-9][0-9.]*[0-9])", stored)
    if drawn_by is not None and drawn_by.group(1).decode() != matplotlib.__version__:
        return None
    if not _same_pixels(stored, drawn):
        return "it was changed after it was drawn; `probe report` draws it anew"
    return None


def _same_pixels(stored: bytes, drawn: bytes) -> bool:
    """Whether both are PNG and show the same."""
    try:
        pictures = [imread(io.BytesIO(content), format="png") for content in (stored, drawn)]
    except (OSError, SyntaxError, ValueError):  # all that Pillow raises for what is no PNG, or a broken one
        return False
    return np.array_equal(pictures[0], pictures[1])
