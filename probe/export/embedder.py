"""Writes one layer of an encoder as a folder of sentence-transformers: the encoder cut behind it, and how it is pooled.

    modules.json                                what a text goes through: encoder, pooling, maybe Normalize
    config.json, model.safetensors, tokenizer   the cut encoder, as transformers reads it
    1_Pooling/config.json                       the pooling that was measured
    README.md                                   the model card

`SentenceTransformer(FOLDER).encode(texts)` gives the vectors of data=sentences.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import transformers

from probe.config import Config, UserError
from probe.encoders.pooling import POOLINGS
from probe.export.export import new_folder
from probe.export.model import EQUAL, cut_behind, save_tokenizer, what_is_left
from probe.probes.selection import select
from probe.system.files import write_atomically, write_json
from probe.vectors.sources import open_text_encoder

MODULES = {"": "Transformer", "1_Pooling": "Pooling", "2_Normalize": "Normalize"}  # by their folders


def export_embedder(cfg: Config, target: Path, log: Callable[[str], None]) -> None:
    """Writes the chosen layer of a config's encoder, pooled as features.sentence says. Leaves nothing if it fails."""
    encoder = open_text_encoder(cfg.encoder, cfg.features.cache_dir)
    chosen = select(cfg.layers, encoder.num_layers, encoder.hidden_size)
    if len(chosen.indices) != 1 or chosen.combine == "mix" or chosen.normalize:
        raise UserError(
            f"{chosen.as_text()}: a folder of sentence-transformers has one layer as it is. Type layers=layer_4."
        )
    if chosen.indices == (0,) or cfg.encoder.weights != "pretrained":
        raise UserError(
            "An embedder needs pretrained weights and at least one block: leave out encoder.weights, and type "
            "layers=layer_1 or a later one."
        )
    (layer,), read = chosen.indices, encoder.reading(False, cfg.features)["texts"]
    if read["pooling"] not in POOLINGS:
        raise UserError(
            f"features.sentence={cfg.features.sentence}: sentence-transformers pools by {', '.join(POOLINGS)}."
        )
    with new_folder(target, "--sentence-transformers") as part:
        cut_model = cut_behind(encoder, layer, cfg.features.final_norm)
        cut_model.smaller.save_pretrained(part)
        save_tokenizer(encoder.text_tokenizer, part)
        again = transformers.AutoModel.from_pretrained(part).eval()(**cut_model.inputs).last_hidden_state
        if cut_model.blocks != layer or (again - cut_model.measured[-1]).norm() > EQUAL * cut_model.measured[-1].norm():
            raise UserError(
                f"{encoder.name} cut behind layer {layer} gives other vectors than were measured. If a norm "
                "stands behind its last layer, measure and export with features.final_norm=each."
            )
        modules = [folder for folder in MODULES if folder != "2_Normalize" or read["normalized"]]
        listed = [
            {"idx": at, "name": str(at), "path": folder, "type": f"sentence_transformers.models.{MODULES[folder]}"}
            for at, folder in enumerate(modules)
        ]
        write_json(part / "modules.json", listed)
        for folder in modules[1:]:
            (part / folder).mkdir()
        pooling = {keys[1]: name == read["pooling"] for name, keys in POOLINGS.items()}
        write_json(part / "1_Pooling" / "config.json", {"word_embedding_dimension": encoder.hidden_size, **pooling})
        write_json(part / "sentence_bert_config.json", {"max_seq_length": read["pieces"], "do_lower_case": False})
        about = f"layer {layer} of {encoder.name}: {what_is_left(encoder, cut_model)}"
        card = (
            f"---\nlibrary_name: sentence-transformers\nbase_model: {encoder.name}\n---\n\n# {target.name}\n\n{about}"
        )
        usage = f"from sentence_transformers import SentenceTransformer\n\nmodel = SentenceTransformer({target.name!r})"
        write_atomically(part / "README.md", f"{card}, on the CPU that wrote this.\n\n```python\n{usage}\n```\n")
    log(f"{about}; pooled by {read['pooling']}, in {target}")
    if cfg.features.sentence != "model" and (encoder.folder / "modules.json").exists():
        log("To pool and normalize as the encoder's own folder does: features.sentence=model.")
