"""Lists the columns of a table, which text, Markdown, LaTeX, CSV, JSON and the page all read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from probe.config import unknown
from probe.format import percent, short_name
from probe.probes.kinds import describe_probe
from probe.scoring.metrics import Scores
from probe.tables.labels import UNDECIDED, conditional
from probe.tables.paper import paper_score
from probe.tables.row import Row


@dataclass(frozen=True)
class Column:
    """Describes what one column shows of a row.

    header: as people read it. values: what programs read, by the names that CSV and JSON have; None where the row has
    none. text: what people read. groups: names in `--columns` that mean several columns.
    """

    header: str
    values: Callable[[Row], dict[str, Any]]
    text: Callable[[Row], str]
    align_left: bool = False
    groups: tuple[str, ...] = ()


def _column(
    name: str, value: Callable[[Row], Any], text: Callable[[Row], str] | None = None, header: str = "", **options: Any
) -> tuple[str, Column]:
    """Makes a column of one value. header: by default the name."""
    text = text or (lambda row: _as_text(value(row)))
    return name, Column(header or name, lambda row: {name: value(row)}, text, **options)


def _as_text(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(_as_text, value))
    return "" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def _score(
    name: str, of: str, score: Callable[[Scores], float | None] | None = None, split: str = "test", **options: Any
) -> tuple[str, Column]:
    """Makes a column of the headline or another score: mean ± deviation."""

    def values(row: Row) -> dict[str, Any]:
        cell = asdict(row.cell(split, score))
        low, high = cell.pop("interval") or (None, None)
        return {f"{name}_{part}": value for part, value in (cell | {"low": low, "high": high}).items()}

    def text(row: Row) -> str:
        if not row.n:
            return "" if score else "failed" if row.failed else "missing"
        cell = row.cell(split, score)
        if cell.mean is None:
            return ""
        return percent(cell.mean) + ("" if cell.std is None else f" ± {percent(cell.std)}")

    return name, Column(f"{split} {of}", values, text, **options)


def signed(share: float) -> str:
    """Writes a share in percent, with its sign, so that an end just below 0 is not taken for 0. 0 itself has none."""
    return "0.00" if abs(share) < 1e-12 else f"{100 * share:+.2f}"


def _n(row: Row) -> str:
    if not row.missing:
        return str(row.n)
    return f"{row.n} of {row.n + row.missing}" + (f" ({row.failed} failed)" if row.failed else "")


def _behind_values(row: Row) -> dict[str, Any]:
    low, high = row.behind or (None, None)
    return {"behind": row.difference, "behind_low": low, "behind_high": high}


def _behind(row: Row) -> str:
    if row.behind is None or row.difference is None:
        return ""
    return f"{signed(row.difference)} ({signed(row.behind[0])} .. {signed(row.behind[1])})"


def _label(row: Row) -> str:
    if row.label == UNDECIDED and row.chance is not None and row.visible < 1:
        return f"{UNDECIDED} ({100 * row.chance:.0f} % within)"
    return conditional(row.label, row.cover.condition) or ""


def _label_values(row: Row) -> dict[str, Any]:
    return {"label": conditional(row.label, row.cover.condition), "chance": row.chance}


def _rates(row: Row) -> str:
    shown = []
    for rate, records in row.rates.items():
        scores = [record.scores.dev.headline for record in records.values()]
        seeds = f" (n = {len(scores)})" if len(scores) < row.n else ""
        shown.append(f"{rate:g}: {percent(sum(scores) / len(scores)) if scores else 'missing'}{seeds}")
    return ", ".join(shown)


def _epoch_s(row: Row) -> float | None:
    seconds = sorted(epoch.train_s for record in row.records.values() for epoch in record.curve)
    return seconds[len(seconds) // 2] if seconds else None


def _thresholds(row: Row) -> list[float | None] | None:
    thresholds = [record.threshold for record in row.records.values()]
    return thresholds if any(value is not None for value in thresholds) else None


DEFAULT: dict[str, Any] = {"groups": ("default",)}
COST: dict[str, Any] = {"groups": ("cost",)}
SCORES: dict[str, Any] = {"groups": ("scores",)}
COLUMNS: dict[str, Column] = dict(
    (
        _column("table", lambda row: row.table),
        _column("data", lambda row: row.setting.data, align_left=True),
        _column("task", lambda row: row.identity.task, align_left=True),
        _column(
            "encoder",
            lambda row: row.setting.encoder,
            lambda row: row.encoder or short_name(row.setting.encoder),
            align_left=True,
            **DEFAULT,
        ),
        _column("context", lambda row: row.setting.features.get("context")),
        _column("probe", lambda row: describe_probe(row.setting.probe), align_left=True),
        _column("row", lambda row: row.name, align_left=True, **DEFAULT),
        _column("condition", lambda row: row.condition, align_left=True, **DEFAULT),
        _column("normalize", lambda row: row.identity.layers.normalize),
        _column("layers", lambda row: row.indices, lambda row: row.layers_as_text, align_left=True, **DEFAULT),
        _column("combine", lambda row: row.identity.layers.combine, align_left=True),
        _column("width", lambda row: row.width, groups=("default", "cost")),
        _column("rate", lambda row: row.setting.probe["learning_rate"] if row.rates else None, **DEFAULT),
        _column("n", lambda row: row.n, _n, **DEFAULT),
        _column("missing", lambda row: row.missing),
        _score("dev", "F1", split="dev", **DEFAULT),
        _score("test", "F1", **DEFAULT),
        ("behind", Column("behind the best (95 %)", _behind_values, _behind, groups=("default",))),
        ("label", Column("label", _label_values, _label, align_left=True, groups=("default",))),
        _column("paper", paper_score, **DEFAULT),
        _score("strict", "strict F1", lambda scores: scores.strict.f1 if scores.strict else None, **SCORES),
        _score("word", "word F1", lambda scores: scores.word.f1 if scores.word else None, **SCORES),
        _score("accuracy", "accuracy", lambda scores: scores.accuracy, **SCORES),
        _score("macro", "macro F1", lambda scores: scores.macro_f1, **SCORES),
        _score("recall", "recall at 1 % FP", lambda scores: scores.recall_at_1, **DEFAULT),
        _score("ap", "average precision", lambda scores: scores.average_precision, **DEFAULT),
        _column("threshold", _thresholds),
        _column("rates", lambda row: _rates(row) or None, header="dev F1 by rate", align_left=True),
        _column("blocks", lambda row: row.num_blocks, **COST),
        _column(
            "parameters",
            lambda row: row.record.parameters if row.n else None,
            lambda row: f"{row.record.parameters:,d}" if row.n else "",
            **COST,
        ),
        _column(
            "epoch_s", _epoch_s, lambda row: "" if (s := _epoch_s(row)) is None else f"{s:.1f}", "s per epoch", **COST
        ),
        _column("margin", lambda row: row.margin),
        _column("seeds", lambda row: [record.seed for record in row.records.values()]),
        _column("keys", lambda row: [record.key for record in row.records.values()], align_left=True),
    )
)
GROUPS = {  # names for several columns
    group: tuple(name for name, column in COLUMNS.items() if group in column.groups)
    for group in ("default", "scores", "cost")
}


def choose_columns(wanted: str | None, rows: Sequence[Row]) -> list[str]:
    """Resolves `--columns a,b,group`. None: the default. A column of a group is left out where no row has a value."""
    names: list[str] = []
    typed = (wanted or "default").split(",")
    for part in typed:
        if part not in COLUMNS and part not in GROUPS:
            raise unknown("--columns", part, [*COLUMNS, *GROUPS])
        names += [name for name in GROUPS.get(part, (part,)) if name not in names]
    has = {name: any(COLUMNS[name].text(row) for row in rows) for name in names}
    has["encoder"] = any(row.encoder for row in rows)
    return [name for name in names if name in typed or has[name]]


def header(name: str, rows: Sequence[Row]) -> str:
    """Gives a column's header; where tags are no spans the headline is accuracy."""
    header = COLUMNS[name].header
    return header.replace("F1", rows[0].task.headline.name) if name in ("dev", "test", "rates") else header


def values_of(rows: Sequence[Row], names: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Gives each row's values by the names of CSV and JSON, fractions in full. names: of columns; none: all."""
    columns = [COLUMNS[name] for name in names or COLUMNS]
    return [{name: value for column in columns for name, value in column.values(row).items()} for row in rows]
