"""Compares two rows of a table, or the rows of one name in two folders: overall and per type, with interval and p."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from probe.config import UserError, closest
from probe.format import percent, short_name
from probe.probes.kinds import describe_probe
from probe.runs.samples import SPLITS, Load, run_counts, samples_of
from probe.scoring.compare import Comparison
from probe.scoring.significance import CONFIDENCE
from probe.tables.columns import signed
from probe.tables.formats import TextTable
from probe.tables.labels import BEST, UNCONVERGED
from probe.tables.notes import heading
from probe.tables.row import Row, tables_of
from probe.tables.rows import build_rows, differing


@dataclass(frozen=True)
class Difference:
    """Holds the difference of two rows in one score, fractions.

    score: dev or test, and of what: the headline, or the F1 of a type. n: seeds of both. difference: a - b. low, high:
    its 95 % interval, and p, two-sided, of no difference; None where no seed differs from another. over: what they
    cover: `seeds and text`, maybe under a condition, or `seeds` where counts are missing.
    """

    rows: str
    score: str
    n: str
    a: float
    b: float
    difference: float
    low: float | None = None
    high: float | None = None
    p: float | None = None
    over: str | None = None


def differences(
    folders: Sequence[Path], names: Sequence[str] = (), margin: float | None = None
) -> tuple[list[Difference], list[str]]:
    """Compares two rows of a folder, or the rows of one name in two folders; also says what A and B are.

    names: of a row of the first folder and one of the last, which are compared, also per type; of two folders only rows
    that converged. Only tables of one text are compared, and if some have the same settings too, only these. If two
    folders have one table each, these may have different texts.
    """
    a, b = folders[0], folders[-1]
    if len(folders) == 1 and names[0] == names[1]:
        raise UserError(f"--difference: {names[0]!r} is given twice. Give two rows.")
    built = [[row for row in build_rows(at, margin) if row.n] for at in folders]
    for at, rows, name in zip((a, b), (built[0], built[-1]), names, strict=False):
        known = [*dict.fromkeys(row.full_name for row in rows)]
        if name not in known:
            hint = f" Did you mean {close!r}?" if (close := closest(name, known)) else ""
            raise UserError(f"--difference: {at} has no row {name!r}.{hint} There are: {'; '.join(known)}.")
    sides = [tables_of([row for row in rows if len(folders) == 1 or row.label != UNCONVERGED]) for rows in built]
    tables = _comparable(sides, names)
    if not tables:
        what = f"{names[0]} of {a} and {names[1]} of {b}" if names else f"rows of one name in {a} and {b}"
        hint = "" if names else " Name two: --difference ROW ROW."
        converged = " on which both converged" * (len(folders) == 2)
        raise UserError(f"{what} have no text and kind of label in common{converged}.{hint}")
    compared: list[Difference] = []
    above = []
    numbers = [str(number) for number in range(1, len(tables) + 1)]
    heads = table_names([pairs[0][0] for *_, pairs in tables]) if len(folders) == 1 else numbers
    for title, (rows, others, pairs) in zip(heads, tables, strict=True):
        head = f"{title}: " * (len(tables) > 1)
        if rows is not others:
            above.append(f"{head}A: {a}: {heading(rows)}. B: {b}: {heading(others)}.")
        for of_a, of_b in pairs:
            types = of_a.record.scores.dev.per_type if names and not of_a.task.is_ranked else ()
            kinds = [None, *types]
            load = functools.cache(run_counts)
            name = head + " - ".join(dict.fromkeys([of_a.full_name, of_b.full_name]))
            of_pair = [_difference(name, of_a, of_b, split, kind, load) for kind in kinds for split in SPLITS]
            compared += of_pair
            if names:
                above.append(head + _reconciled(of_a, of_b, of_pair[0], rows if rows is others else ()))
    if len(folders) == 1:
        above.append(f"A: {names[0]}. B: {names[1]}." + f" {heading(tables[0][0])}." * (len(tables) == 1))
    return compared, above


def table_names(rows: Sequence[Row]) -> list[str]:
    """Names tables by what they differ in. rows: one of each."""
    settings = [
        {
            "data": row.setting.data,
            "encoder": short_name(row.setting.encoder),
            "context": str(row.setting.features.get("context", "")),
            "probe": describe_probe(row.setting.probe),
            "others": ", ".join(setting.removeprefix("probe.") for setting in row.differs_in),
        }
        for row in rows
    ]
    named = [", ".join(differing(of_table, settings).values()) for of_table in settings]
    of_each = zip(named, rows, strict=True)
    return [name if named.count(name) == 1 else f"{name} {row.table}".strip() for name, row in of_each]


def _comparable(
    sides: Sequence[list[list[Row]]], names: Sequence[str]
) -> list[tuple[list[Row], list[Row], list[tuple[Row, Row]]]]:
    """Returns which table of A is compared with which of B, and their rows. sides: the tables of each folder."""
    are_alone = len(sides) == 2 and all(len(tables) == 1 for tables in sides)
    comparable = []
    for rows, others in itertools.product(sides[0], sides[-1]):
        of_a, of_b = ({row.full_name: row for row in side} for side in (rows, others))
        wanted = [names] if names else [(name, name) for name in of_a]
        pairs = [(of_a[name], of_b[other]) for name, other in wanted if name in of_a and other in of_b]
        alike = rows[0].run.text == others[0].run.text or are_alone
        if pairs and alike and rows[0].task == others[0].task:
            comparable.append((rows, others, pairs))
    return [tables for tables in comparable if tables[0][0].table == tables[1][0].table] or comparable


def _reconciled(a: Row, b: Row, dev: Difference, rows: Iterable[Row]) -> str:
    """Says what two rows alone show on dev, and why their table, with these rows, may show less."""
    if dev.p is None:
        return "How sure this difference is cannot be said: each row has one seed, or all its seeds have one score."
    higher, lower = (a, b) if dev.difference >= 0 else (b, a)
    names = {a: a.full_name, b: b.full_name}
    if a.full_name == b.full_name:
        names = {a: f"A's {a.full_name}", b: f"B's {b.full_name}"}
    text = f"Alone, {names[higher]} is {'' if dev.p <= 1 - CONFIDENCE else 'not shown to be '}better"
    text += f" than {names[lower]} on dev (p {_probability(dev.p, '= ')}, at one look)."
    if (looks := max(a.looks, b.looks)) > 1:
        text += f" These scores may have been looked at {looks} times, which this p does not count."
    ranked = [row for row in rows if row.behind]
    if a in ranked and b in ranked:
        text += f" Among the {len(ranked)} rows of the table, with one error for all, "
        text += f"{a.full_name} is {a.label}, {b.full_name} is {b.label}."
        if BEST in (a.label, b.label) and len(ranked) > 2:
            text += (
                " The best was chosen by these scores, so alone it looks better than it is: the table's label holds."
            )
    return text


def _difference(name: str, a: Row, b: Row, split: str, kind: str | None, load: Load) -> Difference:
    order = a.setting.order if a.setting.order == b.setting.order else None
    # In an order of their own: what is simulated depends on it, and B - A is to be -(A - B).
    ordered = sorted([a, b], key=lambda row: min(record.key for record in row.records.values()))
    samples, cover = samples_of([row.records for row in ordered], split, load, kind, order)
    at_a, at_b = (0, 1) if ordered[0] is a else (1, 0)
    of_a, of_b = (sum(samples[at].scores) / len(samples[at].scores) for at in (at_a, at_b))
    score = f"{split} {kind or a.task.headline.name}"
    measured = Difference(name, score, f"{a.n} / {b.n}", of_a, of_b, of_a - of_b)
    if max(a.n, b.n) < 2:
        return measured
    compared = Comparison(samples)
    if compared.error(at_a, at_b) < 1e-9 < abs(of_a - of_b):  # no seed differs from another: how much may others?
        return measured
    low, high = compared.difference(at_a, at_b)[1]
    over = ", ".join(filter(None, ["seeds and text", cover.condition])) if compared.over_text else "seeds"
    return replace(measured, low=low, high=high, p=compared.p(at_a, at_b), over=over)


def render_differences(compared: Sequence[Difference], above: list[str], form: str) -> str:
    """Renders differences in one of FORMATS. CSV and JSON have the numbers alone."""
    lines = [
        [line.rows, line.score, line.n, percent(line.a), percent(line.b), signed(line.difference), *_interval(line)]
        for line in compared
    ]
    covered = next((line.over for line in compared if line.over and "text" in line.over), "seeds and text")
    below = f"95 %: of the difference of these two rows alone, over {covered} (*: over seeds alone, on this text; "
    below += "not known: one seed, or seeds of one score). p: two-sided."
    headers = ["row", "score", "n", "A", "B", "A - B", "95 %", "p"]
    return TextTable(
        headers,
        lines,
        [True, True, *[False] * 6],
        above,
        [below],
        label="tab:difference",
        values=[asdict(line) for line in compared],
    ).render(form)


def _interval(line: Difference) -> tuple[str, str]:
    if line.low is None or line.high is None or line.p is None:
        return "not known", ""
    return f"{signed(line.low)} .. {signed(line.high)}{'*' * (line.over == 'seeds')}", _probability(line.p)


def _probability(p: float, equal: str = "") -> str:
    return f"{equal}{p:.3f}" if p >= 0.0005 else "< 0.001"
