"""Races replayed on committed records, and simulated ones: epochs saved, and how often the best row is dropped wrongly.

    python tests/benchmarks/race.py [DIR ...] [--races 300]

A folder's rows race as `probe race` would have raced them, with the runs that are there: which of them it had asked
for, what stands at its end, and how many of the folder's epochs that is. Then races of rows that are all equally good,
with the spreads over seeds of the folder's rows, dealt anew in each race, and a variance over the text as that between
two seeds of a row (the mean over the folder's rows; 0 for comparison). The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from pathlib import Path

import numpy as np
from tabulate import tabulate

from probe.racing.evidence import Evidence
from probe.racing.rule import Cell, DevRun, Rules, follow, num_ahead, pooled, thresholds
from probe.runs.records import RunRecord, load_records

ROOT = Path(__file__).parents[2]
FOLDERS = ("conll2003-minilm-sentence", "conll2003-minilm-document", "conll2003-minilm-each-layer", "demo-minilm")


def rules_of(num_rows: int, seeds: list[int]) -> Rules:
    ahead = num_ahead(num_rows)
    return Rules(0.05, seeds, ahead, thresholds(num_rows, ahead, len(seeds), 0.05), min_seeds=4)


def by_row(records: dict[Cell, RunRecord]) -> dict[str, list[float]]:
    found: defaultdict[str, list[float]] = defaultdict(list)
    for (row, _), record in records.items():
        found[row].append(record.scores.dev.headline)
    return found


def between_seeds(folder: Path, records: dict[Cell, RunRecord]) -> float:
    """The variance over the text between the first two seeds of a row, mean over the rows."""
    pairs = [[cell for cell in records if cell[0] == row][:2] for row in by_row(records)]
    found = []
    for first, second in pairs:
        runs = {("a", 1): records[first].identity, ("b", 1): records[second].identity}
        found.append(Evidence(folder, runs).text_variance("a", "b", [1]))
    return float(np.mean(found))


def simulate(rules: Rules, spreads: list[float], over_text: float, races: int) -> tuple[float, float]:
    """The share of races of equal rows in which a row (any one of them) leaves, and in which one or more do."""
    draw, rows = np.random.default_rng(0), [str(i) for i in range(len(spreads))]
    wrongly, some = 0.0, 0.0
    for _ in range(races):
        scores = draw.permutation(spreads)[:, None] * draw.standard_normal((len(rows), len(rules.seeds)))
        known = {(row, seed): DevRun(scores[int(row), i]) for row in rows for i, seed in enumerate(rules.seeds)}
        left = follow(rules, rows, known.get, lambda a, b, seeds: over_text / len(seeds)).left
        wrongly += len(left) / len(rows) / races
        some += bool(left) / races
    return wrongly, some


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dirs", nargs="*", type=Path, default=[ROOT / "results" / name for name in FOLDERS])
    parser.add_argument("--races", type=int, default=300)
    options = parser.parse_args()
    replayed, simulated = [], []
    told: dict[str, list[float]] = {}
    for folder in options.dirs:
        every = load_records(folder).values()
        records = {(one.row, one.seed): one for one in every if one.curve and not one.identity.treatment}
        scores = by_row(records)
        seeds = sorted(set.intersection(*({seed for row, seed in records if row == r} for r in scores)))
        rules = rules_of(len(scores), seeds)
        records = {cell: record for cell, record in records.items() if cell[1] in seeds}
        evidence = Evidence(folder, {cell: record.identity for cell, record in records.items()})
        race = follow(rules, list(scores), evidence.run, evidence.text_variance)
        epochs = [sum(len(records[cell].curve) for cell in cells) for cells in (race.runs, records)]
        replayed.append([folder.name, len(records), len(race.runs), f"{epochs[0]} of {epochs[1]}", *race.standing[:1]])
        replayed[-1] += [", ".join(race.standing[1:]), race.ended]
        spreads = [float(np.std(own, ddof=1)) for own in scores.values()]
        spread, over_text = pooled(list(scores.values()))[0], between_seeds(folder, records)
        assert spread is not None
        line = [folder.name, f"{100 * spread:.2f}", f"{(over_text**0.5) / spread:.2f}"]
        for dealt, text in ((spreads, over_text), ([spread] * len(spreads), over_text), (spreads, 0.0)):
            wrongly, some = simulate(rules, dealt, text, options.races)
            line += [f"{wrongly:.1%} / {some:.1%}"]
            told.setdefault(folder.name, []).append(round(wrongly, 4))
        simulated.append(line)
    headers = ["folder", "runs", "of them raced", "epochs", "best", "stand beside it", "ended"]
    print(tabulate(replayed, headers=headers, tablefmt="github"), end="\n\n")
    headers = ["folder", "spread", "text / seeds", "its spreads", "one spread", "its spreads, without text"]
    print(tabulate(simulated, headers=headers, tablefmt="github", disable_numparse=True), end="\n\n")
    print(json.dumps({"dropped_wrongly": told, "epochs": {line[0]: line[3] for line in replayed}}))


if __name__ == "__main__":
    main()
