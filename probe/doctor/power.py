"""Says before a sweep which differences its table could show, from the variances of a results folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from probe.config import Config, UserError
from probe.runs.plan import plan
from probe.runs.samples import run_counts, samples_of
from probe.scoring.compare import Comparison, detectable
from probe.system.format import percent
from probe.tables.notes import heading
from probe.tables.row import tables_of
from probe.tables.rows import build_rows

SEEDS = (3, 5, 10, 20)


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
        raise UserError(f"--like {like}: no table of {corpus.task.title} with two rows of two seeds.")
    samples, units = samples_of([row.records for row in rows], "dev", run_counts)
    over_seeds, over_text, freedom = Comparison(samples).typical
    words = rows[0].record.data.splits.dev.words
    over_text *= words / max(1, corpus.counts()["dev"].words)
    num_rows = max(2, len({planned.selection.name for planned in plans}))
    worse, within = zip(*(detectable(num_rows, n, over_seeds, over_text, freedom) for n in SEEDS), strict=True)
    sizes = " / ".join(map(str, SEEDS))
    return [
        f"{num_rows} rows with {sizes} seeds, if scores vary as in {like} ({heading(rows)}; "
        + (f"{units})" if over_text else "over seeds alone)"),
        f"called worse in 80 % of tables: a row {' / '.join(map(percent, worse))} points behind the best",
        f"a row as good as the best: shown to lie within {' / '.join(map(percent, within))} points in 80 % of tables",
    ]
