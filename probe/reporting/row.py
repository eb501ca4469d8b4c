"""A row of a table."""

from __future__ import annotations

from typing import Any

Row = dict[str, Any]
