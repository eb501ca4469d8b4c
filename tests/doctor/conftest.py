"""Measures shorter than a user's: what is measured is looked at, how well it is not."""

from __future__ import annotations

import pytest

from probe.system import speed


@pytest.fixture(autouse=True)
def short_measurements(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speed, "MEASURE_S", 0.1)
