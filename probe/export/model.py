"""Writes a row of a results folder as a model to deploy: the encoder cut behind the deepest layer, and the row's probe.

    config.json, model.safetensors, tokenizer   the cut encoder, as transformers reads it; with the classifier in it
                                                where that gives the same scores (a linear probe on one layer)
    records/, weights/                          the run and its probe, as in a results folder
    model.json                                  the encoder's fingerprint
    README.md                                   the model card

`probe.load` and `probe tag` read the folder. It is complete or not there at all.
"""

from __future__ import annotations

import copy
import json
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
import transformers
from transformers.pipelines.token_classification import AggregationStrategy

from probe.config import Config, UserError
from probe.data.running_text import split_text
from probe.encoders.encoder import Encoder
from probe.encoders.model import cut_config, hidden_states, load_model, trial_texts
from probe.encoders.pieces import cut
from probe.export.export import new_folder
from probe.format import format_layers, percent
from probe.probes.combine import combine_stored
from probe.probes.kinds import describe_probe
from probe.probes.normalization import Normalization
from probe.probes.tagger import Tagger
from probe.runs.config_from_record import MODEL, ExportedModel, of_export
from probe.runs.outputs import weights_path
from probe.runs.records import RunRecord
from probe.system.files import write_atomically, write_json
from probe.tables.row import Row
from probe.tables.rows import build_rows
from probe.tag.tagging import TrainedRow
from probe.vectors.sources import open_text_encoder

EQUAL = 1e-4  # share of a state's size by which the cut encoder's may differ, by rounding
SPEED_TEXTS, SPEED_TIMES, SPEED_S = 32, 12, 4.0
FIRST = AggregationStrategy.FIRST
SAMPLE = "\"Ana\" (born in Paris) met U.S. co-founders' friends in Zürich/東京: don't! £3.50."
# How transformers alone tags with a model that has a classifier: a text whose words its pipeline finds, or words.
PIPELINE = """
from transformers import pipeline

tag = pipeline("token-classification", "{name}", aggregation_strategy="first")
"""
WORDS = """
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer
from transformers import AutoModelForTokenClassification, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("{name}")
model = AutoModelForTokenClassification.from_pretrained("{name}")
text = BertNormalizer(False, True, False, False).normalize_str("Angela Merkel came to Paris.")
words = [word for word, _ in BertPreTokenizer().pre_tokenize_str(text)]
pieces = tokenizer(words, is_split_into_words=True, return_tensors="pt")
best = model(**pieces).logits[0].argmax(-1).tolist()
first = {{number: at for at, number in reversed([*enumerate(pieces.word_ids())])}}
tags = [(word, model.config.id2label[best[first[number]]]) for number, word in enumerate(words) if number in first]
"""
States: TypeAlias = tuple[torch.Tensor, ...]  # of layer 0 and following, each (B, P, H)


def export_model(file: Path, record: RunRecord, cfg: Config, target: Path, log: Callable[[str], None]) -> None:
    """Writes the probe of a record, with the part of the encoder that it needs. Leaves nothing if it fails."""
    row = next((row for row in build_rows(file.parent.parent) if file in row.records), None)  # for the card
    trained = TrainedRow(file, record, replace(cfg, device="cpu"))
    (tagger, normalization), encoder = trained.probe, trained.encoder
    deepest = max(record.layers.indices)
    with new_folder(target, "--model") as part:
        cut_model = cut_behind(encoder, deepest, cfg.features.final_norm)
        served = _with_classifier(cut_model, record, tagger, normalization) if cut_model.blocks == deepest else None
        (served or cut_model.smaller).save_pretrained(part)
        save_tokenizer(encoder.tokenizer, part)
        for path in (file, weights_path(file)):
            (part / path.parent.name).mkdir()
            shutil.copyfile(path, part / path.parent.name / path.name)
        made = open_text_encoder(of_export(cfg, part).encoder, cfg.features.cache_dir)
        again = load_model(made, "cpu", final_norm=cfg.features.final_norm)
        if not _are_equal(hidden_states(again, *cut_model.texts), cut_model.measured):
            raise UserError(f"{encoder.name} gives other features once it is cut and saved, so nothing was written.")
        write_json(part / MODEL, ExportedModel(made.fingerprint, cut_model.blocks, record.key))
        left = what_is_left(encoder, cut_model)
        usage = _usage(part, served, made) if served else ""
        write_atomically(part / "README.md", _card(record, row, left, usage, target.name))
    log(f"{record.label}: {left}")
    uses = {PIPELINE: ", for a pipeline of transformers", WORDS: f", for transformers as {target / 'README.md'} shows"}
    log(f"{type(served or cut_model.smaller).__name__} in {target}{uses.get(usage, '')}")


class Cut(NamedTuple):
    """Holds an encoder cut behind a layer.

    blocks: of the smaller one. texts: of `trial_texts`. measured: the whole one's hidden states of these texts, up to
    the layer.
    """

    whole: Any
    smaller: Any
    blocks: int
    texts: tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]  # ids, mask, segment ids
    measured: States

    @property
    def inputs(self) -> dict[str, torch.Tensor]:
        """Returns the texts as transformers takes them."""
        ids, mask, types = self.texts
        return {"input_ids": ids, "attention_mask": mask} | ({} if types is None else {"token_type_ids": types})


def cut_behind(encoder: Encoder, layer: int, final_norm: str) -> Cut:
    """Loads an encoder and cuts it to as few blocks as give the measured hidden states. final_norm: as in the config.

    Some encoders apply a final norm to their last hidden state only. After a cut behind block k, layer k would have
    this norm. So such an encoder keeps block k + 1 too.
    """
    whole: Any = load_model(encoder, "cpu", final_norm=final_norm)
    texts = trial_texts(encoder, "cpu")
    measured = hidden_states(whole, *texts)[: layer + 1]
    for blocks in range(layer, min(layer + 2, encoder.num_layers)):
        try:
            smaller: Any = type(whole)(cut_config(whole.config, blocks)).eval().requires_grad_(False)
            if getattr(smaller, "pooler", None) is not None:
                smaller.pooler = torch.nn.Identity()  # not None, see load_model
            if hasattr(whole, "norm_of_each"):
                smaller.norm_of_each = whole.norm_of_each[0], blocks
            weights = whole.state_dict()
            smaller.load_state_dict({name: weights[name] for name in smaller.state_dict()})
            if _are_equal(hidden_states(smaller, *texts), measured):
                return Cut(whole, smaller, blocks, texts, measured)
        except Exception:  # whatever a model raises that cannot be made smaller
            continue
    return Cut(whole, whole, encoder.num_layers, texts, measured)


def what_is_left(encoder: Encoder, cut_model: Cut) -> str:
    """Says what a cut encoder saves, with its speed on this CPU."""
    first, _, first_types = cut_model.texts
    ids = first[:1].repeat(SPEED_TEXTS, 1)
    types = None if first_types is None else first_types[:1].repeat(SPEED_TEXTS, 1)

    def pieces_per_second(model: Any) -> float:
        clock = time.perf_counter()
        hidden_states(model, ids, torch.ones_like(ids), types)
        return ids.numel() / (time.perf_counter() - clock)

    models = (cut_model.whole, cut_model.smaller)
    before, after = (sum(weight.numel() for weight in model.parameters()) / 1e6 for model in models)
    rounds, clock = list[list[float]](), time.perf_counter()
    while len(rounds) < 2 or (len(rounds) < SPEED_TIMES and time.perf_counter() - clock < SPEED_S):
        rounds.append([pieces_per_second(model) for model in models])
    slow, fast = map(max, zip(*rounds, strict=True))  # in turns, the best of each: other work only slows them
    return (
        f"{cut_model.blocks} of {encoder.num_layers} blocks, {after:.1f} M of {before:.1f} M weights, "
        f"{fast / slow:.1f} times as fast as the whole encoder ({fast:,.0f} pieces per second)"
    )


def _are_equal(states: States, measured: States) -> bool:
    """Tells whether hidden states begin with those that were measured."""
    return len(states) >= len(measured) and all(
        state.shape == expected.shape and bool((state - expected).norm() <= EQUAL * expected.norm())
        for state, expected in zip(states, measured, strict=False)
    )


def _with_classifier(cut_model: Cut, record: RunRecord, tagger: Tagger, normalization: Normalization | None) -> Any:
    """Returns the cut encoder with the probe as its head, of transformers' class for it; None if there is none.

    That is so for a linear probe on the vectors of the last layer. Its normalization becomes part of the weights.
    """
    is_plain = record.task.is_per_word and len(record.layers.indices) == 1 and not tagger.is_mix
    if not is_plain or tagger.lstm is not None or record.config.features.get("subword") != "first":
        return None
    config = copy.deepcopy(cut_model.smaller.config)
    config.id2label = dict(enumerate(tagger.labels))
    config.label2id = {label: number for number, label in config.id2label.items()}
    try:
        model: Any = transformers.AutoModelForTokenClassification.from_config(config).eval().requires_grad_(False)
        base = getattr(model, model.base_model_prefix)
        base.load_state_dict({name: cut_model.smaller.state_dict()[name] for name in base.state_dict()})
        (head,) = (
            module
            for module in model.modules()
            if isinstance(module, torch.nn.Linear) and module.out_features == len(tagger.labels)
        )
        weight, bias = tagger.classifier.weight.detach(), tagger.classifier.bias.detach()
        if normalization is not None:
            weight = weight * normalization.gain[0]
            bias = bias - weight @ normalization.shift[0]
        head.weight.data, head.bias.data = weight, bias
        scores = model(**cut_model.inputs).logits
    except Exception:  # whatever a model raises that has no such head
        return None
    states = hidden_states(cut_model.smaller, *cut_model.texts)[record.layers.indices[0]]
    layer = combine_stored([states.flatten(0, 1)], record.selection, normalization)
    expected = tagger.classifier(layer.float()).view_as(scores)
    return model if (scores - expected).norm() <= EQUAL * expected.norm() else None


def save_tokenizer(tokenizer: Any, folder: Path) -> None:
    """Saves a tokenizer so that transformers loads it as it cuts words here.

    Its class would make it anew from its vocabulary, in some classes without the space before each word.
    """
    tokenizer.save_pretrained(folder)
    if tokenizer.is_fast:
        file = folder / "tokenizer_config.json"
        read_as_is = {"tokenizer_class": "PreTrainedTokenizerFast", "model_input_names": tokenizer.model_input_names}
        write_json(file, json.loads(file.read_text(encoding="utf-8")) | read_as_is)


def _usage(folder: Path, model: Any, made: Encoder) -> str:
    """Returns the call of transformers that reads a sample with punctuation as this package does: PIPELINE or WORDS.

    A pipeline finds the words of running text for some tokenizers only. "": neither call does.
    """
    words = split_text(SAMPLE, "sample")
    ids = [*made.special.prefix, *(piece for word in cut(made.tokenizer, words) for piece in word)]
    ids += made.special.suffix
    usage = ""
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        if tokenizer.is_fast and tokenizer(words, is_split_into_words=True)["input_ids"] == ids:
            usage = WORDS
        pipe: Any = transformers.pipeline("token-classification", model=model, tokenizer=tokenizer)
        read = tokenizer(SAMPLE, return_offsets_mapping=True, return_special_tokens_mask=True)
        offsets, is_special = read["offset_mapping"], read["special_tokens_mask"]
        scores = np.zeros((len(offsets), model.config.num_labels))
        entities = pipe.gather_pre_entities(SAMPLE, read["input_ids"], scores, offsets, is_special, FIRST)
        spans = [SAMPLE[word["start"] : word["end"]] for word in pipe.aggregate_words(entities, FIRST)]
        return PIPELINE if (read["input_ids"], spans) == (ids, words) else usage
    except Exception:  # whatever a tokenizer raises that has no words or offsets
        return usage


def _card(record: RunRecord, row: Row | None, left: str, usage: str, name: str) -> str:
    dev, test, score = record.scores.dev.headline, record.scores.test.headline, record.task.headline.name
    indices = record.layers.indices
    chosen = "layer" if len(indices) == 1 else f"{record.layers.combine} of layers"
    task = f"{'token' if record.task.is_per_word else 'text'}-classification"
    lines = [
        f"---\nlibrary_name: transformers\npipeline_tag: {task}\nbase_model: {record.encoder.name}\n---",
        f"\n# {name}\n",
        f"{record.encoder.name}, cut to {left}, on the CPU that wrote this. A probe was trained on its frozen vectors: "
        f"{describe_probe(record.config.probe)}, {chosen} {format_layers(indices)}.\n",
        f"- Corpus: {record.data.name}. Dev {score} {percent(dev)}, test {score} {percent(test)}.",
        *["- Training was ended before it converged."] * (record.outcome != "converged"),
        f"- Row `{record.row}`, seed {record.seed}, record `{record.key}`.",
        f"- Labels: {', '.join(record.data.labels or sorted(record.scores.dev.per_type))}.",
    ]
    if row is not None and row.behind:
        behind = f"at most {percent(abs(row.behind[0]))} points behind the truly best of its table (95 % confidence)"
        lines.insert(-1, f"- Over {row.n} seeds the row has dev {score} {percent(row.dev_mean)} and lies {behind}.")
    if usage:
        lines.append(f"\n```python\n{usage.format(name=name).lstrip()}```")
        lines.append("\nThere, a text must fit the encoder. This package reads longer ones too, in windows:")
    text = '["Angela Merkel came to Paris."]'
    lines.append(
        f'\n```python\nimport probe\n\nmodel = probe.load("{name}")\nmodel.tag({text})\nmodel.features({text})\n```\n'
    )
    return "\n".join(lines)
