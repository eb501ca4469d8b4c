"""Does a choice of layers travel? What the best row of one table loses on the other tables of some folders.

    python tests/benchmarks/transfer.py results/corpora-minilm results/conll2003-minilm-tasks

A row loses on a table what the row of the same layers lies behind the truly best one there, by that table's own
comparison, so the choice of the best is allowed for. The middle and the last layer stand beside it, which nobody had to
choose. In brackets: the 95 % interval, for all rows of the table at once. The tables must be of encoders of one depth.
The last line is JSON: [lost, least, most], fractions, by the table of the choice and the table of its use.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from tabulate import tabulate

from probe.conditions import MAIN
from probe.tables.difference import table_names
from probe.tables.labels import BEST
from probe.tables.row import Row, split_by_encoder
from probe.tables.rows import build_rows

Layers = tuple[list[int], str]


def losses(tables: dict[str, list[Row]]) -> dict[str, dict[str, list[float]]]:
    """Returns what each choice of layers loses on each table that ranks it: the difference, its least and its most."""
    best = {name: next(row for row in table if row.label == BEST) for name, table in tables.items()}
    (depth,) = {row.num_layers for row in best.values()}
    choices: dict[str, Layers] = {name: layers_of(row) for name, row in best.items()}
    choices |= {"the middle layer": ([depth // 2], "concat"), "the last layer": ([depth], "concat")}
    return {
        chosen: {
            name: [abs(row.difference), abs(row.behind[1]), row.most_behind]
            for name, table in tables.items()
            for row in table
            if layers_of(row) == layers and row.difference is not None and row.behind
        }
        for chosen, layers in choices.items()
    }


def layers_of(row: Row) -> Layers:
    return row.indices, row.identity.layers.combine


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path)
    built = [table for folder in parser.parse_args().folders for table in split_by_encoder(build_rows(folder))]
    ranked = [[row for row in table if row.section == MAIN and row.behind] for table in built]
    ranked = [table for table in ranked if table]
    tables = dict(zip(table_names([table[0] for table in ranked]), ranked, strict=True))
    lost = losses(tables)
    lines = []
    for chosen, of_table in lost.items():
        cells = {name: "{:.2f} ({:.2f} .. {:.2f})".format(*(100 * x for x in loss)) for name, loss in of_table.items()}
        lines.append([chosen, *(cells.get(name, "") for name in tables)])
    print(tabulate(lines, ["chosen on", *tables], disable_numparse=True))
    print(json.dumps(lost))


if __name__ == "__main__":
    main()
