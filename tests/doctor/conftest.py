"""Measures shorter than a user's: what is measured is looked at, how well it is not."""

from __future__ import annotations

import pytest

from probe.doctor import cost
from probe.probes import finetune


@pytest.fixture(autouse=True)
def short_measurements(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (cost, finetune):
        monkeypatch.setattr(module, "MEASURE_S", 0.1)
