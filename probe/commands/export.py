"""Implements `probe export`."""

from __future__ import annotations

import functools
from pathlib import Path

from probe.commands.arguments import Parser
from probe.config import UserError
from probe.settings import config_of, split_settings


def export(arguments: list[str]) -> int:
    """Writes words, tags, documents and the vectors of the chosen layers (layers=..., as in training)
    of all three splits to a new folder, as safetensors and JSON lines. export.json describes them.
    Features that the store lacks are extracted first. An existing folder is never changed.

    With --model, writes a row whose weights were saved (save_probe=true) as a model: the encoder cut
    behind the deepest layer that it needs, and the probe.

    examples:
      probe export data=demo encoder=minilm_l6 layers=concat_last_four --to features
      probe export data=demo encoder=minilm_l6 layers.indices=0: --each --to features
          then in Python: safetensors.numpy.load_file("features/train.safetensors")["vectors"]
      probe export results/kept --row last --model model
      probe export encoder=minilm_l6 layers=layer_4 --sentence-transformers my-embedder
    """
    from probe.tag.io import select_saved_probe

    parser = Parser(export)
    parser.add_argument(
        "given", nargs="*", metavar="DIR | setting=value", help="with --model, first the results folder"
    )
    to = parser.add_mutually_exclusive_group(required=True)
    to.add_argument("--to", type=Path, metavar="DIR", help="the new folder")
    to.add_argument("--model", type=Path, metavar="DIR", help="write a row as a model to deploy into this new folder")
    to.add_argument(
        "--sentence-transformers",
        type=Path,
        metavar="DIR",
        help="write one layer, pooled as features.sentence says, for SentenceTransformer into this new folder",
    )
    parser.add_argument("--row", help="the row, by its name in tables (needed if there are several)")
    parser.add_argument("--seed", type=int, metavar="S", help="the seed of the row (default: the best one on dev)")
    parser.add_argument(
        "--each", action="store_true", help="do not combine the layers: write vectors of (words, layers, hidden size)"
    )
    options = parser.parse_intermixed_args(arguments)

    overrides, folders = split_settings(options.given)
    log = functools.partial(print, flush=True)
    if options.model:
        if len(folders) != 1:
            raise UserError("export: --model needs a results folder: probe export RESULTS --model DIR")
        from probe.export.model import export_model
        from probe.runs.config_from_record import config_of_record

        file, record = select_saved_probe(Path(folders[0]), options.row, options.seed)
        cfg = config_of_record(file, record, config_of, overrides)
        export_model(file, record, cfg, options.model, log)
    elif folders:
        raise UserError(f"export: {folders[0]!r} is no setting. To write a row of it as a model: --model DIR.")
    elif options.sentence_transformers:
        from probe.export.embedder import export_embedder

        export_embedder(config_of(overrides), options.sentence_transformers, log)
    else:
        from probe.export.export import export as write

        write(config_of(overrides), options.to, options.each, log)
    return 0
