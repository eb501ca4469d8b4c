"""Says before a sweep which differences its table could show, from dev's size or the variances of a results folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from probe.config import Config, UserError
from probe.data.corpus import Corpus
from probe.data.order import order_of
from probe.format import percent
from probe.runs.plan import plan
from probe.runs.samples import run_counts, samples_of
from probe.scoring.compare import Comparison, detectable
from probe.scoring.significance import DESIGN_EFFECT, Units
from probe.tables.notes import heading
from probe.tables.row import tables_of
from probe.tables.rows import build_rows

SEEDS = (3, 5, 10, 20)
ROWS = 6  # as many as the quickstart's
# What the committed tables with a BiLSTM have, times the number of gold items of dev: the variance of one run over
# seeds, and that of a difference over documents; and how many units are as informative as one normal one.
OVER_SEEDS, OVER_TEXT, UNITS_PER_FREEDOM = 0.04, 0.025, 4


def dev_line(corpus: Corpus, order: str | None) -> str:
    """Says what a table can show on this dev text, if scores vary as in the committed tables. order: data.order."""
    split = corpus.splits["dev"]
    gold = np.array([len(corpus.task.items(tags)) for tags in split.tags])
    found = order_of(order, corpus.about.get("neighbours"), "dev")
    units = Units.of(gold, split.documents, found)
    what = f"dev's {units.items:,} labels in {units.title}"
    if units.effective < 2:
        return f"{what} say nothing of other documents: no row will be called worse. Mark documents, or take more"
    freedom = max(1, int((units.effective - 1) / UNITS_PER_FREEDOM))
    over_text = OVER_TEXT / units.items * (DESIGN_EFFECT if units.condition else 1)
    worse, _ = detectable(ROWS, SEEDS[0], OVER_SEEDS / units.items, over_text, freedom)
    condition = f", and only {units.condition}" * bool(units.condition)
    return (
        f"{what}: of {ROWS} rows with {SEEDS[0]} seeds, one about {percent(min(1.0, worse))} points behind the best or "
        f"more will be called worse{condition} (guessed by the number of labels; with --like FOLDER by its scores)"
    )


def power_lines(configs: Sequence[Config], like: Path) -> list[str]:
    """Says what 3 to 20 seeds would show on this dev text, if scores vary as in the folder `like`.

    Variances over the text are taken to fall with the number of dev's words. Raises UserError if the folder has no
    table of this kind of label with two rows of two seeds.
    """
    plans = [planned for planned in map(plan, configs) if planned.selection.indices]
    corpus = plans[0].corpus
    for table in tables_of(build_rows(like)):
        rows = [row for row in table if row.behind and row.n > 1]
        if len(rows) > 1 and rows[0].task == corpus.task:
            break
    else:
        raise UserError(f"--like {like}: no table of {corpus.task.headline.title} with two rows of two seeds.")
    order = rows[0].setting.order
    samples, cover = samples_of([row.records for row in rows], "dev", run_counts, order=order)
    over_seeds, over_text, freedom = Comparison(samples).typical
    words = rows[0].record.data.splits.dev.words
    times = words / max(1, corpus.counts()["dev"].words)
    over_text, freedom = over_text * times, max(1, int(freedom / max(1.0, times)))
    num_rows = max(2, len({planned.selection.name for planned in plans}))
    worse, within = zip(*(detectable(num_rows, n, over_seeds, over_text, freedom) for n in SEEDS), strict=True)
    sizes = " / ".join(map(str, SEEDS))
    return [
        f"{num_rows} rows with {sizes} seeds, if scores vary as in {like} ({heading(rows)}; "
        + (f"{cover.units})" if cover.units else "over seeds alone)"),
        f"called worse in 80 % of tables: a row {' / '.join(map(percent, worse))} points behind the best",
        f"a row as good as the best: shown to lie within {' / '.join(map(percent, within))} points in 80 % of tables",
    ]
