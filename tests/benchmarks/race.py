"""Races replayed on committed records: what is left at their end, and the share of epochs that they take.

    python tests/benchmarks/race.py [DIR ...] [--orders 60] [--margin 1]

A folder's rows race as `probe race` would have raced them, with the runs that are there: which of them it had asked
for, what stands at its end, and how many of the folder's epochs that is. The share depends on which seeds come first:
beside the committed order, each row's seeds are dealt anew so many times, and the least, mean and most share of epochs
is given, with how often the row that is best over all seeds stands at the end. How often a race is wrong is simulated
in decisions.py. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean

import numpy as np
from tabulate import tabulate

from probe.race.race import dev_run
from probe.race.rule import VERSION, Cell, DevRun, Race, Rules, num_ahead, replay, thresholds
from probe.runs.records import load_records

ROOT = Path(__file__).parents[2]
FOLDERS = ("conll2003-minilm-sentence", "conll2003-minilm-document", "demo-minilm")


def rules_of(num_rows: int, seeds: Sequence[int], margin: float) -> Rules:
    ahead = num_ahead(num_rows)
    limits = thresholds(num_rows, ahead, len(seeds), 0.05)
    return Rules(0.05, margin, list(seeds), ahead, limits, min_seeds=4, version=VERSION)


def dealt(rows: Sequence[str], seeds: Sequence[int], draw: np.random.Generator | None) -> dict[Cell, Cell]:
    """Which run takes the place of each: of one row, in another order of seeds. None: each its own."""
    order = {row: list(seeds) if draw is None else draw.permutation(seeds).tolist() for row in rows}
    return {(row, seed): (row, own) for row in rows for seed, own in zip(seeds, order[row], strict=True)}


def raced(
    rules: Rules, costs: Mapping[str, tuple[int, ...]], runs: Mapping[Cell, DevRun], places: Mapping[Cell, Cell]
) -> Race:
    """A race in which a run beyond the committed ones cannot be made."""
    return replay(rules, costs, lambda cell: runs[places[cell]] if cell in places else "there is no such run")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dirs", nargs="*", type=Path, default=[ROOT / "results" / name for name in FOLDERS])
    parser.add_argument("--orders", type=int, default=60)
    parser.add_argument("--margin", type=float, default=1.0, help="of the table, in points (default: 1)")
    options = parser.parse_args()
    lines, found = [], {}
    for folder in options.dirs:
        every = load_records(folder)
        paths = {(one.row, one.seed): path for path, one in every.items() if one.curve and not one.identity.condition}
        records = {cell: every[path] for cell, path in paths.items()}
        rows = list(dict.fromkeys(row for row, _ in records))
        seeds = sorted(set.intersection(*({seed for of, seed in records if of == row} for row in rows)))
        records = {cell: record for cell, record in records.items() if cell[1] in seeds}
        runs = {cell: dev_run(paths[cell]) for cell in records}
        costs = {row: (max(one.layers.indices), one.layers.width) for (row, _), one in records.items()}
        best = max(rows, key=lambda row: fmean(runs[row, seed].dev for seed in seeds))
        rules, whole = (
            rules_of(len(rows), seeds, options.margin / 100),
            sum(len(record.curve) for record in records.values()),
        )
        draw, shares, stands = np.random.default_rng(0), [], 0
        for number in range(options.orders + 1):
            places = dealt(rows, seeds, draw if number else None)
            race = raced(rules, costs, runs, places)
            epochs = sum(len(records[places[cell]].curve) for cell in race.runs)
            if not number:
                lines.append([folder.name, f"{len(race.runs)} of {len(records)}", f"{epochs} of {whole}"])
                lines[-1] += [", ".join(race.remaining), race.ended or ""]
                found[folder.name] = {"committed": round(epochs / whole, 3)}
            else:
                shares.append(epochs / whole)
                stands += best in race.remaining
        if shares:
            named = {
                "least": min(shares),
                "mean": fmean(shares),
                "most": max(shares),
                "best_stands": stands / len(shares),
            }
            found[folder.name] |= {name: round(value, 3) for name, value in named.items()}
            lines[-1][3:3] = [f"{min(shares):.0%} .. {fmean(shares):.0%} .. {max(shares):.0%}"]
        else:
            lines[-1][3:3] = [""]
    headers = ["folder", "runs", "epochs", "share in other orders", "remaining, best first", "ended"]
    print(tabulate(lines, headers=headers, tablefmt="github", disable_numparse=True), end="\n\n")
    print(json.dumps({"orders": options.orders, "epochs": found}))


if __name__ == "__main__":
    main()
