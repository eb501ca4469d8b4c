"""Rows to tables: text, Markdown, CSV, LaTeX and JSON; columns by choice; several settings side by side, or compared.

A pure function of rows (see `rows`). Reads files only; imports nothing that takes long.
"""

from __future__ import annotations

import csv
import difflib
import functools
import io
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tabulate import tabulate

from probe.config import UserError
from probe.features import write_atomically
from probe.published import PUBLISHED, differences
from probe.records import load_records
from probe.rows import SCORES, Row, build_rows, counts_of, records_of, results_folder, text_tests
from probe.stats import ALPHA, bootstrap, holm, permutation_test

FORMATS = ("text", "md", "csv", "tex", "json")
FILES = {"md": "table.md", "csv": "table.csv", "tex": "table.tex", "json": "table.json"}


class Column(NamedTuple):
    header: str
    show: Callable[[Row], str]
    left: bool = False


def _spread(name: str) -> Callable[[Row], str]:
    def show(row: Row) -> str:
        if name not in row:
            return ""
        mean, std = row[name]["mean"], row[name]["std"]
        if mean is None:
            return "failed" if row["failed"] else "missing"
        return _percent(mean) if std is None else f"{_percent(mean)} ± {_percent(std)}"

    return show


def _range(name: str, low: str | int, high: str | int, part: str | None = None) -> Callable[[Row], str]:
    def show(row: Row) -> str:
        values = row[name] if part is None else row[name][part]
        return "" if values is None or values[low] is None else f"{_percent(values[low])} .. {_percent(values[high])}"

    return show


def _cost(name: str, form: str) -> Callable[[Row], str]:
    return lambda row: format(row["cost"][name], form) if "cost" in row else ""


def _against(relation: str) -> Callable[[Row], str]:
    def show(row: Row) -> str:
        test = row["against"].get(relation)
        if test is None:
            return ""
        name = f"{test['row']}: " if relation == "next" else ""
        return f"{name}{100 * test['dev_difference']:+.2f}, p {_p(test['p_seeds'])} / {_p(test['p_text_holm'])}"

    return show


def _n(row: Row) -> str:
    if not row["missing"]:
        return str(row["n"])
    return f"{row['n']} of {row['n'] + row['missing']}" + (f" ({row['failed']} failed)" if row["failed"] else "")


def _layers(row: Row) -> str:
    indices = row["indices"]
    in_a_row = len(indices) > 2 and indices == list(range(indices[0], indices[-1] + 1))
    return f"{indices[0]}..{indices[-1]}" if in_a_row else ", ".join(map(str, indices))


def _published(source: str) -> Callable[[Row], str]:
    def show(row: Row) -> str:
        value = PUBLISHED[source]["rows"].get(row["layers"])
        return "" if value is None else str(value)

    return show


COLUMNS: dict[str, Column] = {
    "row": Column("row", lambda row: row["layers"], left=True),
    "layers": Column("layers", _layers, left=True),
    "combine": Column("combine", lambda row: row["combine"], left=True),
    "width": Column("width", lambda row: str(row["width"])),
    "n": Column("n", _n),
    "dev": Column("dev F1", _spread("dev_f1")),
    "test": Column("test F1", _spread("test_f1")),
    "order": Column("order", lambda row: row["order"] or "", left=True),
    "paper": Column("paper", _published("paper")),
    "bert_ner": Column("bert_ner", _published("bert_ner")),
    "dev_range": Column("dev min .. max", _range("dev_f1", "min", "max")),
    "test_range": Column("test min .. max", _range("test_f1", "min", "max")),
    "dev_interval": Column("dev 95 %", _range("dev_f1", 0, 1, "interval")),
    "test_interval": Column("test 95 %", _range("test_f1", 0, 1, "interval")),
    "best": Column("to the best: dev, p seeds / text", _against("best"), left=True),
    "next": Column("to the next better: dev, p seeds / text", _against("next"), left=True),
    "strict": Column("test strict F1", _spread("test_strict_f1")),
    "word": Column("test word F1", _spread("test_word_f1")),
    "recall": Column("test entity word recall", _spread("test_entity_word_recall")),
    "accuracy": Column("test accuracy", _spread("test_accuracy")),
    "macro": Column("test macro F1", _spread("test_macro_f1")),
    "parameters": Column("parameters", _cost("parameters", ",d")),
    "epoch_s": Column("s an epoch", _cost("seconds_per_epoch", ".1f")),
    "mb_read": Column("MB read", _cost("mb_read", ".0f")),
    "f1_per_width": Column("dev F1 a unit of width", lambda row: _cost("f1_per_width", ".2%")(row).removesuffix("%")),
}
DEFAULT = ("row", "layers", "width", "n", "dev", "test", "order")
GROUPS = {  # names for several columns
    "default": DEFAULT,
    "tests": ("order", "best", "next"),
    "spread": ("dev_range", "test_range", "dev_interval", "test_interval"),
    "scores": ("strict", "word", "recall", "accuracy"),
    "cost": ("width", "parameters", "epoch_s", "mb_read", "f1_per_width"),
}


def _percent(value: float) -> str:
    return f"{100 * value:.2f}"


def _p(value: float | None) -> str:
    return "-" if value is None else "<0.001" if value < 0.001 else f"{value:.3f}"


def choose_columns(asked: str | None, rows: Sequence[Row]) -> list[str]:
    """Column names for `--columns a,b,group`. None: what fits the rows. Raises UserError for what is no column."""
    if asked is None:
        known = any(row["about"] and row["about"]["data"] == "CoNLL-2003" for row in rows)
        names = [name for name in DEFAULT if name != "order" or any(row["order"] for row in rows)]
        return [*names, "paper"] if known else names
    names = []
    for part in asked.split(","):
        if part not in COLUMNS and part not in GROUPS:
            close = difflib.get_close_matches(part, [*COLUMNS, *GROUPS], n=1)
            hint = f" Did you mean {close[0]}?" if close else ""
            raise UserError(f"--columns: there is no {part!r}.{hint} There are: {', '.join([*COLUMNS, *GROUPS])}.")
        names += [name for name in GROUPS.get(part, (part,)) if name not in names]
    return names


def render(rows: list[Row], form: str, columns: str | None = None) -> str:
    """Rows in one of FORMATS; CSV and JSON have columns of their own. Unlike settings stay apart."""
    if columns is not None and form in ("csv", "json"):
        raise UserError(f"--columns: {form} has columns of its own; text, md and tex can choose.")
    if form == "json":
        return json.dumps(rows, indent=1, ensure_ascii=False) + "\n"
    if form == "csv":
        return _csv(rows)
    blocks = []
    for group in dict.fromkeys(row["group"] for row in rows):
        block = [row for row in rows if row["group"] == group]
        names = choose_columns(columns, block)
        cells = [[COLUMNS[name].show(row) for name in names] for row in block]
        headers = [header(name, block) for name in names]
        lefts = [COLUMNS[name].left for name in names]
        over, under = above(block, names), notes(block, names)
        if form == "tex":
            bold = [i for i, row in enumerate(block) if row["order"] == "best"]
            blocks.append(_latex(headers, cells, lefts, bold, [*over, *under], f"tab:{group}"))
        else:
            if form == "md":
                cells = [
                    [f"**{c}**" if c and name in ("row", "dev") and row["order"] == "best" else c for name, c in line]
                    for row, line in zip(block, (zip(names, line, strict=True) for line in cells), strict=True)
                ]
            blocks.append("\n\n".join(["\n".join(over), _grid(headers, cells, lefts, form), *under]) + "\n")
    return "\n".join(blocks)


def header(name: str, rows: Sequence[Row]) -> str:
    """A column's header; of tags that are no spans the headline is accuracy."""
    header = COLUMNS[name].header
    of_headline = name in ("dev", "test", "f1_per_width")
    return header.replace("F1", "accuracy") if of_headline and _is_tags(rows) else header


def _is_tags(rows: Sequence[Row]) -> bool:
    return any(row["about"] and row["about"]["task"] == "tags" for row in rows)


def _grid(headers: list[str], cells: list[list[str]], lefts: list[bool], form: str) -> str:
    return tabulate(
        cells,
        headers=headers,
        tablefmt="github" if form == "md" else "simple",
        disable_numparse=True,
        colalign=["left" if left else "right" for left in lefts],
    )


def caption(rows: Sequence[Row]) -> str:
    setting = rows[0]["setting"]
    probe, features = setting["probe"], setting["features"]
    model = (
        f"BiLSTM {probe['num_layers']} x {probe['hidden_size']} per direction"
        if probe["num_layers"]
        else "linear probe"
    )
    arithmetic = f" in {probe['precision']}" if probe.get("precision", "float32") != "float32" else ""
    score = "Accuracy" if _is_tags(rows) else "Span F1 (conlleval)"
    return (
        f"{setting['data']}, {Path(setting['encoder']).name}, {features['context']} context, "
        f"{features['subword']} piece, {model}{arithmetic}. {score} in percent, "
        "mean ± standard deviation over n seeds."
    )


def above(rows: Sequence[Row], columns: Sequence[str]) -> list[str]:
    """The caption, and how each published column's setting differs, so that nobody reads unlike things as like."""
    about = next((row["about"] for row in rows if row["about"]), None)
    lines = [caption(rows)]
    if about is None:
        return lines
    about = about | {"seeds": " or ".join(map(str, sorted({row["n"] for row in rows if row["n"]})))}
    return lines + [
        f"{source}: {PUBLISHED[source]['score']}, {PUBLISHED[source]['source']}. Here otherwise: "
        + "; ".join(differences(about, source))
        + "."
        for source in PUBLISHED
        if source in columns
    ]


def notes(rows: Sequence[Row], columns: Sequence[str]) -> list[str]:
    lines = []
    if any(row["n"] == 1 for row in rows):
        lines.append(
            "n = 1 has no spread, no rank and no bold: the seed alone moves F1 by about a point, so the order of such "
            "rows may be the seed's."
        )
    tests = [row["against"]["best"] for row in rows if row["against"]]
    if tests and {"order", "best", "next"} & set(columns):
        unit = next((test["unit"] for test in tests if test["unit"]), None)
        text = (
            f" (not corrected) and paired randomisation of the test split's {unit} (Holm-corrected)"
            if unit
            else " (Holm-corrected)"
        )
        note = (
            "order: best has the highest dev mean; tied could be as good; below is told apart from it (p < 0.05) by "
            f"exact permutation of dev F1 over seeds{text}."
        )
        lowest = min(test["p_seeds"] for test in tests)
        if lowest >= ALPHA:
            note += f" Here the seeds are too few or too spread to tell any row apart (lowest p {_p(lowest)})."
        lines.append(note)
    return lines


def _latex(
    headers: list[str], cells: list[list[str]], lefts: list[bool], bold: list[int], above: list[str], label: str
) -> str:
    """A table for \\usepackage{booktabs}, ready to paste."""
    lines = [[_tex(cell) for cell in line] for line in cells]
    for i in bold:
        lines[i] = [f"\\textbf{{{cell}}}" if cell else cell for cell in lines[i]]
    body = "\n".join("  " + " & ".join(line) + r" \\" for line in lines)
    return (
        "\\begin{table}\n\\centering\n"
        f"\\begin{{tabular}}{{@{{}}{''.join('l' if left else 'r' for left in lefts)}@{{}}}}\n\\toprule\n"
        f"  {' & '.join(map(_tex, headers))} \\\\\n\\midrule\n{body}\n\\bottomrule\n\\end{{tabular}}\n"
        f"\\caption{{{_tex(' '.join(above))}}}\n\\label{{{label}}}\n\\end{{table}}\n"
    )


def _tex(text: str) -> str:
    escaped = re.sub(r"([&%$#_{}])", r"\\\1", text.replace("\\", r"\textbackslash "))
    escaped = re.sub(r"(?<![\w.])-(?=\d)", r"$-$", escaped)
    for plain, command in (("^", r"\^{}"), ("~", r"\~{}"), ("±", r"$\pm$"), (" .. ", "--"), ("<", "$<$"), (">", "$>$")):
        escaped = escaped.replace(plain, command)
    return re.sub(r"(?<=\d)\.\.(?=\d)", "--", escaped)


def _csv(rows: list[Row]) -> str:
    scores = [f"{split}_{name}" for split in ("dev", "test") for name in SCORES]
    parts = ("mean", "std", "min", "max")
    tests = ("dev_difference", "test_difference", "p_seeds", "p_seeds_holm", "p_text", "p_text_holm", "unit")
    costs = ("parameters", "seconds_per_epoch", "mb_read", "f1_per_width")
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    folders = any("dir" in row for row in rows)
    writer.writerow(
        ["dir"] * folders
        + "group data encoder context layers indices combine width n missing failed order".split()
        + [f"{score}_{part}" for score in scores for part in parts]
        + [f"best_{name}" for name in tests]
        + list(costs)
    )
    for row in rows:
        setting, best, cost = row["setting"], row["against"].get("best", {}), row.get("cost", {})
        values = [row.get(score, {}).get(part) for score in scores for part in parts]
        values += [best.get(name) for name in tests] + [cost.get(name) for name in costs]
        writer.writerow(
            ([row["dir"]] if folders else [])
            + [row["group"], setting["data"], setting["encoder"], setting["features"]["context"], row["layers"]]
            + [
                " ".join(map(str, row["indices"])),
                row["combine"],
                row["width"],
                row["n"],
                row["missing"],
                row["failed"],
            ]
            + [row["order"], *values]
        )
    return out.getvalue()


def render_side_by_side(folders: Sequence[Path], form: str) -> str:
    """Several result sets in one table: a line a row of any of them, a pair of columns for each setting."""
    blocks = []
    for folder in folders:
        rows = build_rows(folder)
        for group in dict.fromkeys(row["group"] for row in rows):
            blocks.append((folder, [row for row in rows if row["group"] == group]))
    if form in ("json", "csv"):
        return render([row | {"dir": str(folder)} for folder, rows in blocks for row in rows], form)
    by_name = [{row["layers"]: row for row in rows} for _, rows in blocks]
    names = list(dict.fromkeys(name for rows in by_name for name in rows))
    letters = [chr(ord("A") + i) for i in range(len(blocks))]
    headers = ["row"] + [
        f"{letter} {header(c, rows)}"
        for letter, (_, rows) in zip(letters, blocks, strict=True)
        for c in ("n", "dev", "test")
    ]
    cells = [
        [name] + [COLUMNS[c].show(rows[name]) if name in rows else "" for rows in by_name for c in ("n", "dev", "test")]
        for name in names
    ]
    above = [f"{letter}: {folder}: {caption(rows)}" for letter, (folder, rows) in zip(letters, blocks, strict=True)]
    lefts = [True] + [False] * (len(headers) - 1)
    if form == "tex":
        return _latex(headers, cells, lefts, [], above, "tab:side-by-side")
    return "\n".join(above) + "\n\n" + _grid(headers, cells, lefts, form) + "\n"


def compare(a: Path, b: Path) -> list[dict[str, Any]]:
    """Two result sets, row by row of one name: differences A - B, their bootstrap intervals over seeds, and p values.

    p_seeds: exact permutation of the split's scores over seeds. p_text: paired randomisation over the test split, where
    both are of one text. Each also with Holm's correction over the rows. Raises UserError for what cannot be compared.
    """
    return _compare(a, b)[0]


def _compare(a: Path, b: Path) -> tuple[list[dict[str, Any]], list[str]]:
    """What `compare` gives, and the two captions."""
    rows, records, captions = [], [], []
    for folder in (a, b):
        built = build_rows(folder)
        if len({row["group"] for row in built}) > 1:
            raise UserError(f"{folder} holds several settings; --compare needs one in each folder.")
        rows.append({row["layers"]: row for row in built if row["n"]})
        records.append(load_records(results_folder(folder)))
        captions.append(caption(built))
    shared = [name for name in rows[0] if name in rows[1]]
    if not shared:
        raise UserError(f"{a} and {b} have no row in common.")
    pairs = [(records_of(rows[0][name], records[0]), records_of(rows[1][name], records[1])) for name in shared]
    results = []
    for name, pair, text in zip(shared, pairs, text_tests(pairs, functools.cache(counts_of)), strict=True):
        result: dict[str, Any] = {"row": name, "n": [len(side) for side in pair]}
        for split in ("dev", "test"):
            ours, theirs = ([SCORES["f1"](record["scores"][split]) for record in side.values()] for side in pair)
            many = min(len(ours), len(theirs)) > 1
            result[split] = {
                "a": sum(ours) / len(ours),
                "b": sum(theirs) / len(theirs),
                "difference": sum(ours) / len(ours) - sum(theirs) / len(theirs),
                "interval": bootstrap(ours, theirs) if many else None,
                "p_seeds": permutation_test(ours, theirs),
            }
        results.append(result | text)
    for split in ("dev", "test"):
        for result, p in zip(results, holm([result[split]["p_seeds"] for result in results]), strict=True):
            result[split]["p_seeds_holm"] = p
    for result, p in zip(results, holm([result["p_text"] for result in results]), strict=True):
        result["p_text_holm"] = p
    return results, captions


def render_comparison(a: Path, b: Path, form: str) -> str:
    """`compare` in one of FORMATS."""
    results, captions = _compare(a, b)
    if form == "json":
        return json.dumps(results, indent=1) + "\n"
    if form == "csv":
        return _comparison_csv(results)
    headers = ["row", "n"]
    for split in ("dev", "test"):
        headers += [f"{split} A", f"{split} B", "A - B", "95 %", "p seeds"]
    headers.append("p text")
    cells = []
    for result in results:
        line = [result["row"], " / ".join(map(str, result["n"]))]
        for split in ("dev", "test"):
            part = result[split]
            interval = part["interval"]
            line += [_percent(part["a"]), _percent(part["b"]), f"{100 * part['difference']:+.2f}"]
            line += ["" if interval is None else f"{100 * interval[0]:+.2f} .. {100 * interval[1]:+.2f}"]
            line += [_p(part["p_seeds"])]
        cells.append([*line, _p(result["p_text_holm"])])
    above = [f"{letter}: {folder}: {text}" for letter, folder, text in zip("AB", (a, b), captions, strict=True)]
    below = (
        "p seeds: exact permutation over seeds, not corrected. p text: paired randomisation over the test split "
        f"({next((r['unit'] for r in results if r['unit']), 'not of one text')}), Holm-corrected over the rows."
    )
    lefts = [True] + [False] * (len(headers) - 1)
    if form == "tex":
        return _latex(headers, cells, lefts, [], [*above, below], "tab:comparison")
    return "\n".join(above) + "\n\n" + _grid(headers, cells, lefts, form) + "\n\n" + below + "\n"


def _comparison_csv(results: list[dict[str, Any]]) -> str:
    parts = ("a", "b", "difference", "low", "high", "p_seeds", "p_seeds_holm")
    last = ("p_text", "p_text_holm", "unit")
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["row", "n_a", "n_b", *(f"{split}_{part}" for split in ("dev", "test") for part in parts), *last])
    for result in results:
        line = [result["row"], *result["n"]]
        for split in ("dev", "test"):
            low, high = result[split]["interval"] or (None, None)
            found = {**result[split], "low": low, "high": high}
            line += [found[part] for part in parts]
        writer.writerow(line + [result[name] for name in last])
    return out.getvalue()


def table_files(rows: list[Row]) -> dict[str, str]:
    """What the files of a table hold: what the records give, whatever logs lie beside them."""
    kept = [row | {"failed": 0} for row in rows]
    return {name: render(kept, form) for form, name in FILES.items()}


def write_tables(results_dir: Path, rows: list[Row]) -> None:
    """The table beside the records, in the forms that files are read in."""
    for name, text in table_files(rows).items():
        write_atomically(results_dir / name, text)
