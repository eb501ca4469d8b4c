"""Compares anybody's scores, from a CSV file, by the statistic of the tables: labels, intervals, which row to use."""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from probe.config import UserError, default_margin, suggestion
from probe.data.split import lines_of
from probe.format import pluralize
from probe.scoring.compare import Comparison, Sample
from probe.scoring.score import jackknife
from probe.scoring.significance import ON_THIS_TEXT, Units
from probe.tables.formats import TextTable
from probe.tables.labels import BEST, UNDECIDED, cheapest_within, conditional, label_of_interval

if TYPE_CHECKING:
    import pandas

FIELDS = ("row", "seed", "unit", "score", "document", "cost")
EXACT = 10  # so many equal seeds stand for a score that no seed changes


@dataclass
class ScoredRow:
    """Holds a row: n scores with their mean and standard deviation, and how it compares.

    behind: the difference of means to the best row; behind_low, behind_high: how far it lies behind the truly best one.
    loss: what it is expected to lose against that one. condition: what the label rests on. use: whether it is
    recommended. None: not compared.
    """

    row: str
    cost: float | None
    n: int
    mean: float
    std: float | None
    behind: float | None = None
    behind_low: float | None = None
    behind_high: float | None = None
    loss: float | None = None
    label: str | None = None
    condition: str = ""
    use: bool = False


def read_scores(file: Path) -> pandas.DataFrame:
    """Reads a CSV file with the columns row, score and, where they are known, seed, unit, document and cost.

    score: of a row on a unit of the text (a sentence, a task, a prompt) under a seed; higher is better. document: what
    a unit belongs to, because units of one vary together; of independent units the unit itself. cost: of a row, in any
    unit. Raises UserError with the line and what is wrong.
    """
    import pandas

    reader = csv.reader((f"{line}\n" for line in lines_of(file)), skipinitialspace=True, strict=True)
    lines: dict[int, list[str]] = {}
    try:
        for fields in reader:
            if fields not in ([], [""]):
                lines[reader.line_num] = fields
    except csv.Error as error:
        raise UserError(f"--scores {file}, line {reader.line_num}: {error}.") from None
    header = [name.strip() for name in next(iter(lines.values()), [])]
    for name in FIELDS:
        if (times := header.count(name)) > 1 or (not times and name in ("row", "score")):
            hint = "" if times else suggestion(name, header)
            raise UserError(
                f"--scores {file}: {f'{times} columns' if times else 'no column'} {name!r}.{hint} Columns are "
                f"{', '.join(FIELDS)}, with commas between."
            )
    for number, fields in lines.items():
        if len(fields) != len(header):
            raise UserError(
                f"--scores {file}, line {number}: {pluralize(len(fields), 'field')}, but the header has {len(header)}. "
                'A comma separates two fields, also at the end of a line; a name with a comma stands in quotes: "a,b".'
            )
    table = pandas.DataFrame([*lines.values()][1:], [*lines][1:], header, dtype=str)
    for name in {"score", "cost"} & {*table}:
        numbers = pandas.to_numeric(table[name], errors="coerce")
        if len(bad := table.index[~np.isfinite(numbers)]):
            raise UserError(f"--scores {file}, line {bad[0]}: {name} is {table[name][bad[0]]!r}, no number.")
        table[name] = numbers
    if table.empty:
        raise UserError(f"--scores {file} has no scores.")
    table = table.assign(**{name: "" for name in ("seed", "unit") if name not in table})
    for name in {"row", "seed", "unit", "document"} & {*table}:
        table[name] = table[name].str.strip()
    if len(twice := table.index[table.duplicated(["row", "seed", "unit"])]):
        line = table.loc[twice[0]]
        raise UserError(
            f"--scores {file}, line {twice[0]}: a second score of row {line.row!r}, seed {line.seed!r}, unit "
            f"{line.unit!r}. Repeated measurements are seeds: number them in a column seed."
        )
    for name, of in (("cost", "row"), ("document", "unit")):
        several = table.groupby(of)[name].nunique().gt(1) if name in table else pandas.Series(dtype=bool)
        if several.any():
            raise UserError(f"--scores {file}: {of} {several.idxmax()!r} has more than one {name}. Give it one.")
    counted = table.groupby(["row", "seed"]).size()
    units = table.unit.nunique()
    if (counted < units).any():
        row, seed = counted.index[(counted < units).argmax()]
        scored = {*table.unit[(table.row == row) & (table.seed == seed)]}
        missing = next(unit for unit in table.unit if unit not in scored)
        raise UserError(f"--scores {file}: row {row!r}, seed {seed!r} has no score of unit {missing!r}, others have.")
    return table


def compare_scores(table: pandas.DataFrame, margin: float) -> tuple[list[ScoredRow], str]:
    """Compares the rows of `read_scores`, with a margin in their unit; also says over what the intervals are."""
    names, units = table.row.unique(), table.unit.unique()
    scores = [
        table[table.row == name].pivot(index="seed", columns="unit", values="score")[units].to_numpy() for name in names
    ]
    costs = table.groupby("row").cost.first().astype(float).to_dict() if "cost" in table else {}
    rows = [
        ScoredRow(name, costs.get(name), len(runs), runs.mean(), runs.mean(1).std(ddof=1) if len(runs) > 1 else None)
        for name, runs in zip(names, scores, strict=True)
    ]
    influences, effective, over = _influences(table, scores)
    if len(rows) < 2 or (not influences and not any(row.std for row in rows)):
        return rows, over
    if exact := max(map(len, scores)) < 2:
        scores = [np.repeat(run, EXACT, 0) for run in scores]
        influences = [np.repeat(run, EXACT, 0) for run in influences or []]
    samples = [
        Sample(runs.mean(1), influences[at] if influences else None, effective=effective)
        for at, runs in enumerate(scores)
    ]
    compared = Comparison(samples)
    behind, losses = compared.behind(), compared.losses().mean(0)
    for at, row in enumerate(rows):
        row.behind, (row.behind_low, row.behind_high) = float(row.mean - rows[compared.best].mean), behind[at]
        row.loss = float(losses[at])
        row.label = BEST if at == compared.best else label_of_interval(behind[at], margin)
        row.condition = "" if influences else ON_THIS_TEXT
    order = [(row.cost,) if row.cost is not None else () for row in rows]
    place = cheapest_within(behind, order, [row.mean for row in rows], margin) if all(order) else None
    rows[compared.best if place is None else place].use = True
    return rows, f"{over}, not over seeds" if exact else f"seeds and {over}" if influences else over


def _influences(table: pandas.DataFrame, scores: Sequence[np.ndarray]) -> tuple[list[np.ndarray] | None, float, str]:
    """Returns how much each document moves each row's mean, (seeds, U), and what the intervals are over.

    Between them stands the effective number of documents. None if there is one document, or they are not known: units
    that vary together unseen would make intervals far too narrow.
    """
    units = table.drop_duplicates("unit")
    if "document" not in table:
        return None, math.inf, "seeds alone, on this text: no column document says which units vary together"
    clusters = np.unique(units.document, return_inverse=True)[1]
    effective = Units(np.ones(len(units)), clusters, "documents").effective
    if effective < 2:
        return None, math.inf, "seeds alone, on this text: one document, or nearly so, says nothing of others"
    moves = [np.stack([_influence_on_mean(run, clusters) for run in runs]) for runs in scores]
    return moves, effective, f"{clusters.max() + 1:,} documents"


def _influence_on_mean(values: np.ndarray, unit_of: np.ndarray) -> np.ndarray:
    sums = np.stack([values, np.ones(len(values))], 1)
    return jackknife(lambda sums: sums[..., 0] / np.maximum(sums[..., 1], 1), sums, unit_of)


def render_scores(file: Path, margin: float | None, form: str) -> str:
    """Renders the comparison of a file's scores in one of FORMATS.

    margin: in points (hundredths) where all scores lie between 0 and 1, else in the unit of the score.
    """
    table = read_scores(file)
    low, high = table.score.min(), table.score.max()
    scale = 100 if low >= 0 and high <= 1 else 1
    points = default_margin() if margin is None else margin
    rows, over = compare_scores(table, points / scale)
    best = next((row for row in rows if row.label == BEST), None)
    if margin is None and scale == 1 and best:
        raise UserError(
            f"--scores {file}: scores are {low:g} to {high:g}. Add --margin: how much you can spare of that."
        )
    digits = 2 if scale == 100 else max(0, 3 - math.floor(math.log10(max(abs(low), abs(high), 1e-9))))

    def number(value: float) -> str:
        return f"{scale * value + 0.0:.{digits}f}"

    lines, below = [], []
    for row in rows:
        spread = f" ± {number(row.std)}" if row.std is not None else ""
        lines.append([row.row, "" if row.cost is None else f"{row.cost:g}", str(row.n), number(row.mean) + spread])
        if row.behind is not None and row.behind_low is not None and row.behind_high is not None:
            low, high = number(row.behind_low), number(row.behind_high)
            lines[-1] += [f"{number(row.behind)} ({low} .. {high})", conditional(row.label, row.condition) or ""]
    first = "No recommendation: there is one row."
    if len(rows) > 1:
        first = f"No recommendation: nothing says how much a row's score varies ({over}). "
        first += (
            "Add seeds, or a column document: which units vary together (of independent units, the unit's own name)."
        )
    if best:
        use = next(row for row in rows if row.use)
        lies = -(use.behind_low or 0.0)
        what = f"the cheapest row within {points:g} of the best, {best.row}" if use is not best else "the best row"
        sure = f"95 % confidence{f', {best.condition}' * bool(best.condition)}"
        first = f"Use {use.row}: it is {what}, and lies at most {number(lies)} behind the truly best ({sure})."
        if lies >= points / scale:
            first += f" No row is shown to lie within {points:g} of the truly best one."
        if cheaper := [row for row in rows if row.label == UNDECIDED and (row.cost or 0.0) < (use.cost or 0.0)]:
            likely = min(cheaper, key=lambda row: row.loss or 0.0)
            first += f" Cheaper, but undecided: {likely.row}, which is expected to lose {number(likely.loss or 0.0)}."
        below.append(
            "behind the best: the difference of means; in brackets how far the row lies behind the truly best of these "
            f"rows, over {over}. Each end holds with 95 % confidence for all rows at once (Hsu 1984), at one look at "
            "these scores."
        )
    caption = f"{file.name}: {'score in percent' if scale == 100 else 'score'}, mean ± standard deviation over n seeds."
    headers = ["row", "cost", "n", "score", "behind the best (95 %)", "label"][: len(lines[0])]
    align_left = [name in ("row", "label") for name in headers]
    return TextTable(
        headers,
        lines,
        align_left,
        [caption],
        below,
        [at for at, row in enumerate(rows) if row.use],
        [0, 3],
        "tab:scores",
        first=[first],
        values=[asdict(row) for row in rows],
    ).render(form)
