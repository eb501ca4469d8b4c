"""How much of the gap between a baseline and the fine-tuned encoder a row of frozen features closes, with its interval.

The share is a ratio of two differences that have the fine-tuned row and the baseline in common, so its interval is
Fieller's (1954): all shares R for which row - (1 - R) * baseline - R * fine-tuned does not differ significantly from 0.
It is over seeds alone: on another text of the kind the share varies more.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, variance

from probe.scoring.significance import CONFIDENCE, Cell


def gap_closed(row: Sequence[float], baseline: Sequence[float], tuned: Sequence[float]) -> Cell | None:
    """0 at the baseline's mean, 1 at the fine-tuned mean; the arguments are scores of seeds.

    None where fine-tuning is not above the baseline. No interval where one of them has a single seed, or where the gap
    itself is not significantly different from 0, for then no share is excluded.
    """
    gap, way = fmean(tuned) - fmean(baseline), fmean(row) - fmean(baseline)
    if gap <= 0:
        return None
    share = way / gap
    return Cell(share, None, None, None, _fieller(share, way, gap, [row, baseline, tuned]))


def _fieller(share: float, way: float, gap: float, samples: Sequence[Sequence[float]]) -> list[float] | None:
    """Its two ends; degrees of freedom by Welch and Satterthwaite at the estimate."""
    if min(map(len, samples)) < 2:
        return None
    of_row, of_baseline, of_tuned = (variance(sample) / len(sample) for sample in samples)  # of the means
    parts = [of_row, (1 - share) ** 2 * of_baseline, share**2 * of_tuned]
    if not sum(parts):
        return [share, share]
    freedom = sum(parts) ** 2 / sum(part**2 / (len(one) - 1) for part, one in zip(parts, samples, strict=True))
    from scipy.special import stdtrit

    square = float(stdtrit(freedom, (1 + CONFIDENCE) / 2)) ** 2
    # (way - R gap)^2 <= t^2 (of_row + (1 - R)^2 of_baseline + R^2 of_tuned), a quadratic in R
    a = gap**2 - square * (of_baseline + of_tuned)
    b = way * gap - square * of_baseline
    c = way**2 - square * (of_row + of_baseline)
    if a <= 0:
        return None
    reach = math.sqrt(max(0.0, b**2 - a * c))
    return [(b - reach) / a, (b + reach) / a]
