"""Lists the columns of a table, which text, Markdown, LaTeX, CSV, JSON and the page all read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from probe.config import UserError
from probe.probes.kinds import describe_probe
from probe.scoring.compare import STATISTIC
from probe.scoring.significance import Cell
from probe.system.files import to_jsonable
from probe.system.format import closest, percent, short_name
from probe.tables.decisions import BEST, ELIMINATED, UNCONVERGED
from probe.tables.published import PUBLISHED, numbers_for, sources_for
from probe.tables.rates import RATE, all_rates
from probe.tables.row import Row
from probe.tables.rows import SCORES

Note = str | Callable[[Sequence[Row]], str]


@dataclass(frozen=True)
class Column:
    """Describes what one column shows of a row, to people and to machines.

    name: as `--columns` takes it. header: as people read it. value: what machines read, a number, a text, a list or a
    small dict of them; None where the row has none. text: what people read. path: the place of the value in
    `table.json`; a dot leads inside, as in `cost.parameters`. csv: the headers of the value in CSV, each with a
    function from the value to its cell. groups: names in `--columns` that mean several columns. note: explains the
    column below the table; a function where it depends on the rows. optional: the column is not in CSV where no row has
    a value, and not in JSON for a row that has none.
    """

    name: str
    header: str
    value: Callable[[Row], Any]
    text: Callable[[Row], str]
    path: str
    csv: Mapping[str, Callable[[Any], Any]] = field(default_factory=dict)
    align_left: bool = False
    groups: tuple[str, ...] = ()
    note: Note = ""
    optional: bool = False


def _column(
    name: str,
    header: str,
    value: Callable[[Row], Any],
    text: Callable[[Row], str] | None = None,
    path: str | None = None,
    csv: Mapping[str, Callable[[Any], Any]] | None = None,
    **options: Any,
) -> Column:
    """Makes a column of a number, a text or a list; in CSV its header is the last part of its path."""
    path = path or name
    as_csv = {path.rpartition(".")[2]: _joined} if csv is None else csv
    return Column(name, header, value, text or (lambda row: _as_text(value(row))), path, as_csv, **options)


def _as_text(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(_as_text, value))
    if isinstance(value, dict):
        return ", ".join(f"{name} {_as_text(part)}" for name, part in value.items())
    return "" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def _joined(value: Any) -> Any:
    return " ".join(map(str, value)) if isinstance(value, list) else value


def _part(*names: str | int) -> Callable[[Any], Any]:
    """Gives a function that follows these names into a value, and gives None where there is nothing."""

    def find(value: Any) -> Any:
        for name in names:
            value = None if value is None else value[name]
        return value

    return find


# Parts of a cell in CSV, and the ends of its interval.
SPREAD: dict[str, Callable[[Any], Any]] = {f"_{name}": _part(name) for name in ("mean", "std", "min", "max")}
MEAN = {end: SPREAD[end] for end in ("_mean", "_std")}
ENDS: dict[str, Callable[[Any], Any]] = {"_low": _part("interval", 0), "_high": _part("interval", 1)}


def _cell(
    name: str,
    header: str,
    path: str,
    text: Callable[[Row, Cell], str],
    csv: Mapping[str, Callable[[Any], Any]] = SPREAD,
    **options: Any,
) -> Column:
    """Makes a column of `row.cells[path]`, a score over seeds. A race shows no test score of an eliminated row."""

    def value(row: Row) -> Any:
        return to_jsonable(row.cells[path]) if path in row.cells else None

    def show(row: Row) -> str:
        is_hidden = path not in row.cells or (row.eliminated and path.startswith("test"))
        return "" if is_hidden else text(row, row.cells[path])

    return Column(name, header, value, show, path, {f"{path}{end}": get for end, get in csv.items()}, **options)


def _relative(name: str, header: str, has_interval: bool = True, **options: Any) -> Column:
    """Makes a column of `row.relative[name]`, a score relative to other rows: mean ± deviation (interval)."""

    def value(row: Row) -> Any:
        return to_jsonable(row.relative[name]) if name in row.relative else None

    def show(row: Row) -> str:
        cell = row.relative.get(name)
        if cell is None or cell.mean is None:
            return ""
        spread = "" if cell.std is None else f" ± {percent(cell.std)}"
        interval = f" ({' .. '.join(map(percent, cell.interval))})" if cell.interval and has_interval else ""
        return f"{percent(cell.mean)}{spread}{interval}"

    parts = MEAN | ENDS if has_interval else MEAN
    csv = {f"{name}{end}": get for end, get in parts.items()}
    return Column(name, header, value, show, name, csv, optional=True, **options)


def _cost(name: str, header: str, part: str, form: str = "", **options: Any) -> Column:
    """Makes a column of a part of `row.cost`."""

    def value(row: Row) -> Any:
        return getattr(row.cost, part) if row.cost else None

    def show(row: Row) -> str:
        return "" if value(row) is None else format(value(row), form).removesuffix("%")

    return _column(name, header, value, show, f"cost.{part}", **options)


def _to_best(split: str) -> Column:
    """Makes a column of the difference to the best row on one split."""

    def show(row: Row) -> str:
        if row.to_best is None:
            return ""
        part = getattr(row.to_best, split)
        interval = "" if part.interval is None else f" ({' .. '.join(map(_signed, part.interval))})"
        return _signed(part.difference) + interval

    return _column(
        name := f"{split}_to_best",
        f"{split}: to the best (95 %)",
        lambda row: to_jsonable(getattr(row.to_best, split)) if row.to_best else None,
        show,
        f"to_best.{split}",
        {name: _part("difference"), f"{name}_low": ENDS["_low"], f"{name}_high": ENDS["_high"]},
        groups=("differences",),
        note=_note_on_pairs,
    )


def _published(source: str) -> Column:
    """Makes a column of other people's numbers: the first score that the source has."""

    def value(row: Row) -> float | None:
        numbers = numbers_for(source, row)
        return numbers[0] if numbers else None

    return _column(source, source, value, lambda row: str(value(row) or ""), optional=True)


def _signed(share: float) -> str:
    """Writes a share in percent, with its sign; what rounds to nothing has none."""
    text = f"{100 * share:+.2f}"
    return "0.00" if float(text) == 0 else text


def _mean(row: Row, cell: Cell) -> str:
    if cell.mean is None:
        return "failed" if row.failed else "missing"
    return percent(cell.mean) if cell.std is None else f"{percent(cell.mean)} ± {percent(cell.std)}"


def _n(row: Row) -> str:
    if not row.missing:
        return str(row.n)
    return f"{row.n} of {row.n + row.missing}" + (f" ({row.failed} failed)" if row.failed else "")


def _behind(row: Row) -> str:
    """Shows how far a row lies behind the best: the difference of their means, and its interval to the truly best."""
    if row.behind is None:
        return ""
    difference = row.to_best.dev.difference if row.to_best else 0.0
    return f"{_signed(difference)} ({_signed(row.behind[0])} .. {_signed(row.behind[1])})"


def _label(row: Row) -> str:
    eliminated = [f"{ELIMINATED} in round {row.eliminated.round}"] if row.eliminated else []
    return ", ".join([UNCONVERGED, *eliminated]) if row.label == UNCONVERGED else "".join(eliminated) or row.label or ""


def _rates_as_csv(tried: Any) -> str:
    return " ".join(f"{one['rate']:g}:{one['dev']['mean']}" for one in tried or ())


def _over(rows: Sequence[Row]) -> str:
    """Names what the intervals of a table cover."""
    over_text = any(row.over_text for row in rows if row.label == BEST)
    return "seeds and text" if over_text else "seeds alone (the counts of some runs are missing)"


def _note_on_labels(rows: Sequence[Row]) -> str:
    best = next((row for row in rows if row.label == BEST), None)
    if best is None:
        return ""
    return (
        f"behind the best: dev {best.task.score} minus that of the row with the highest mean; in brackets how far "
        f"the row lies behind the truly best one, over {_over(rows)}, with 95 % confidence for all rows at once (Hsu "
        "1984). worse: the whole interval is below 0. within the margin: all of it is above "
        f"-{best.margin:g} (--margin). undecided: neither. The dev score of a run is that of its best epoch, so it "
        "is a little too high; test scores decide nothing."
    )


def _note_on_pairs(rows: Sequence[Row]) -> str:
    return (
        f"to the best: the difference of the two rows' means, and its interval over {_over(rows)} for this pair alone."
    )


SPLITS = ("dev", "test")
SHORT_NAMES = {  # of columns of scores; the others are named by their path
    "dev_f1": "dev",
    "test_f1": "test",
    "test_strict_f1": "strict",
    "test_word_f1": "word",
    "test_accuracy": "accuracy",
    "test_macro_f1": "macro",
}


OF_SPANS = ("strict", "word", "accuracy")


def _score(path: str) -> Column:
    """Makes a column of a score other than the headline."""
    name = SHORT_NAMES.get(path, path)
    groups = ("scores",) if name in SHORT_NAMES.values() else ()
    return _cell(name, path.replace("_", " ").replace("f1", "F1"), path, _mean, groups=groups)


COLUMNS: dict[str, Column] = {
    column.name: column
    for column in (
        _column("group", "table", lambda row: row.group),
        _column("data", "data", lambda row: row.setting.data, path="setting.data", align_left=True),
        _column(
            "encoder",
            "encoder",
            lambda row: row.setting.encoder,
            lambda row: row.encoder or short_name(row.setting.encoder),
            path="setting.encoder",
            align_left=True,
            groups=("default",),
        ),
        _column("context", "context", lambda row: row.setting.features["context"], path="setting.features.context"),
        _column("row", "row", lambda row: row.name, align_left=True, groups=("default",)),
        _column(
            "condition",
            "condition",
            lambda row: row.condition or None,
            align_left=True,
            groups=("default",),
            optional=True,
        ),
        _column(
            "normalize", "normalize", lambda row: row.normalize, csv={"normalize": lambda v: v or "none"}, optional=True
        ),
        _column(
            "layers",
            "layers",
            lambda row: row.indices,
            lambda row: row.layers_as_text,
            path="indices",
            align_left=True,
            groups=("default",),
        ),
        _column("combine", "combine", lambda row: row.combine, align_left=True),
        _column("width", "width", lambda row: row.width, groups=("default", "cost")),
        _column(
            "rate",
            "rate",
            lambda row: row.setting.probe[RATE] if row.rates else None,
            groups=("default",),
            optional=True,
        ),
        _column("n", "n", lambda row: row.n, _n, groups=("default",)),
        _column("missing", "missing", lambda row: row.missing),
        _column("failed", "failed", lambda row: row.failed),
        _cell("dev", "dev F1", "dev_f1", _mean, groups=("default",)),
        _cell("test", "test F1", "test_f1", _mean, groups=("default",)),
        _column(
            "behind",
            "behind the best (95 %)",
            lambda row: row.behind,
            _behind,
            csv={"behind_low": _part(0), "behind_high": _part(1)},
            groups=("default", "differences"),
            note=_note_on_labels,
        ),
        _column(
            "label",
            "label",
            lambda row: row.label,
            _label,
            align_left=True,
            groups=("default", "differences"),
            note=_note_on_labels,
        ),
        *map(_published, PUBLISHED),
        _column(
            "to_best",
            "best row",
            lambda row: to_jsonable(row.to_best),
            lambda row: row.to_best.row if row.to_best else "",
            csv={"to_best": _part("row")},
            align_left=True,
        ),
        *map(_to_best, SPLITS),
        *(_score(f"{s}_{score}") for s in reversed(SPLITS) for score in SCORES if score != "f1"),
        _column(
            "rates",
            "dev F1 by rate",
            lambda row: to_jsonable(row.rates) or None,
            all_rates,
            csv={"rates": _rates_as_csv},
            align_left=True,
            optional=True,
        ),
        _relative(
            "selectivity",
            "selectivity (95 %)",
            groups=("floors",),
            note="selectivity: dev score minus that of the same row on the control task; interval over seeds.",
        ),
        _relative(
            "guess_floor",
            "guess floor",
            has_interval=False,
            groups=("floors",),
            note="guess floor: boundary F1 on dev times the sum of squared type shares. Guessing each type by its "
            "frequency would score this much at the boundaries that were found.",
        ),
        _column("num_blocks", "blocks", lambda row: row.num_blocks, groups=("cost",)),
        _cost("parameters", "parameters", "parameters", ",d", groups=("cost",)),
        _cost("epoch_s", "s per epoch", "seconds_per_epoch", ".1f", groups=("cost",)),
        _column(
            "eliminated",
            "eliminated because",
            lambda row: to_jsonable(row.eliminated) if row.eliminated else None,
            lambda row: row.eliminated.why if row.eliminated else "",
            path="eliminated",
            csv={"eliminated_in_round": _part("round"), "eliminated_because": _part("why")},
            align_left=True,
            optional=True,
        ),
        _column("margin", "margin", lambda row: row.margin),
        _column("seeds", "seeds", lambda row: row.seeds),
        _column("keys", "keys", lambda row: row.keys, align_left=True),
        _column("sha256", "sha256 of the records", lambda row: row.sha256, align_left=True),
        _column("statistic", "statistic", lambda row: STATISTIC),
        _column(
            "setting",
            "probe",
            lambda row: to_jsonable(row.setting),
            lambda row: describe_probe(row.setting.probe),
            csv={"probe": lambda setting: describe_probe(setting["probe"])},
            align_left=True,
        ),
        _column(
            "about",
            "task",
            lambda row: to_jsonable(row.about),
            lambda row: row.about.task if row.about else "",
            csv={name: _part(name) for name in ("task", "case", "piece", "scoring")},
            align_left=True,
        ),
    )
}
GROUPS = {  # names for several columns
    group: tuple(column.name for column in COLUMNS.values() if group in column.groups)
    for group in ("default", "floors", "differences", "scores", "cost")
}
FOR_MACHINES = ("csv", "json")  # formats with every column by default


def choose_columns(wanted: str | None, rows: Sequence[Row], form: str = "text") -> list[str]:
    """Resolves `--columns a,b,group`. None: what fits the rows, and of CSV and JSON everything that was measured.

    Raises UserError for what is no column.
    """
    if wanted is None and form in FOR_MACHINES:
        return [name for name in COLUMNS if name not in PUBLISHED]
    if wanted is None:
        empty = {
            name
            for name in ("behind", "label", "condition", "rate")
            if not any(COLUMNS[name].text(row) for row in rows)
        }
        if not any(row.encoder for row in rows):
            empty.add("encoder")
        return [name for name in GROUPS["default"] if name not in empty] + sources_for(rows)
    names: list[str] = []
    for part in wanted.split(","):
        if part not in COLUMNS and part not in GROUPS:
            close = closest(part, [*COLUMNS, *GROUPS])
            hint = f" Did you mean {close}?" if close else ""
            raise UserError(f"--columns: there is no {part!r}.{hint} There are: {', '.join([*COLUMNS, *GROUPS])}.")
        names += [name for name in GROUPS.get(part, (part,)) if name not in names]
    has = {  # columns of groups that are left out where all rows would be alike in them
        "rate": any(row.rates for row in rows),
        "condition": any(row.condition for row in rows),
        "encoder": any(row.encoder for row in rows),
    }
    has |= dict.fromkeys(OF_SPANS, any(row.task.has_spans for row in rows))
    has["macro"] = any(not row.task.has_spans for row in rows)
    typed = wanted.split(",")
    return [name for name in names if name in typed or has.get(name, True)]


def header(name: str, rows: Sequence[Row]) -> str:
    """Gives a column's header; where tags are no spans the headline is accuracy."""
    header = COLUMNS[name].header
    return header.replace("F1", rows[0].task.score) if name in ("dev", "test", "rates") else header
