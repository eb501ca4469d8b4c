"""Checks what a run needs: data, layers, encoder, store, device, results. Says what is missing and what to type.

Each part gives facts, which `report.py` renders. Data that can be read but is probably not the intended data gets a
warning, which the last line repeats.

Extracts nothing, but runs the encoder briefly to measure it. Files on the Hub are downloaded into the Hub's own cache,
as for a run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from probe.conditions import derived, main_data
from probe.config import Config, UserError
from probe.data.corpus import Corpus, load_corpus
from probe.data.split import SplitCounts
from probe.doctor.cost import cost_of_sweep, extraction_s
from probe.doctor.data_warnings import DataWarning, data_warnings
from probe.encoders.checkpoint import Encoder, open_encoder
from probe.encoders.encoder import load_model, notes_on
from probe.encoders.pieces import notes_on_pieces
from probe.features.store import DamagedShard, FeatureStore
from probe.features.words import cut_texts
from probe.probes.kinds import bfloat16_kernels, kind_of
from probe.probes.normalization import Scales, scales_in, scales_of
from probe.probes.scales import REMEDY, adds_unlike, unlike_layers
from probe.probes.selection import select
from probe.runs.outputs import problem_of_record
from probe.system import hub
from probe.system.files import why_not_writable
from probe.system.grouping import group_by
from probe.system.machine import num_cores, resolve_device
from probe.system.provenance import hardware, versions
from probe.tables.paper import CONLL2003

if TYPE_CHECKING:
    import torch

Facts = dict[str, Any]  # what JSON can hold


@dataclass(frozen=True)
class Part:
    """Holds one thing that a run needs. facts: what was found. problem: what is missing and what to type, or None."""

    name: str
    facts: Facts
    problem: str | None = None


@dataclass(frozen=True)
class Examination:
    """Holds all parts of a run, and whether it would work. hub: whether the Hub answers, within `hub_limit_s`."""

    parts: list[Part]
    versions: dict[str, str]
    hub: bool
    hub_limit_s: float

    @property
    def works(self) -> bool:
        return not self.failed

    @property
    def failed(self) -> list[str]:
        """Returns the names of the parts in which something is missing."""
        return list(dict.fromkeys(part.name for part in self.parts if part.problem is not None))

    @property
    def warnings(self) -> list[str]:
        """Returns the names of all warnings."""
        names = [warning["name"] for part in self.parts for warning in part.facts.get("warnings", ())]
        return list(dict.fromkeys(names))


def examine(
    cfg: Config, sweep: Sequence[Config] = (), report: Callable[[Part], object] = lambda part: None
) -> Examination:
    """Examines each part in turn.

    sweep: the settings of all runs, if there are several; `cfg` is the first. Then all their corpora are checked, and
    their cost is estimated. report: gets each part as soon as it is known.
    """
    parts: list[Part] = []

    def check(name: str, look: Callable[[], tuple[Any, Facts]]) -> Any:
        try:
            found, facts = look()
            part = Part(name, facts)
        except UserError as error:
            found, part = None, Part(name, {}, str(error))
        parts.append(part)
        report(part)
        return found

    kind = kind_of(cfg)
    corpora = [check("data", partial(_data, configs)) for configs in _by_corpus([cfg, *sweep])]
    corpus = corpora[0]
    encoder = check("encoder", lambda: _encoder(cfg))
    device = check("device", lambda: _device(cfg))
    if encoder is not None:
        check("layers", lambda: _layers(cfg, encoder))
    seconds_of_store: dict[str, float] = {}
    if corpus is not None and encoder is not None and device is not None and kind.reads_features:
        seconds_of_store = check("store", lambda: _store([cfg, *sweep], corpus, encoder, device)) or {}
    if corpus is not None and encoder is not None and kind.is_trained and not kind.reads_features:
        check("windows", lambda: _windows(cfg, corpus, encoder, device if len(sweep) < 2 else None))
    is_sound = all(part.problem is None for part in parts)
    check("results", lambda: _results(cfg, runs=is_sound))
    if len(sweep) > 1 and all(part.problem is None for part in parts):
        check("sweep", lambda: (None, cost_of_sweep(sweep, seconds_of_store)))
    installed = {name: version for name, version in versions().items() if version}
    return Examination(parts, installed, hub.reachable(), hub.limit_s())


def _by_corpus(configs: Sequence[Config]) -> list[list[Config]]:
    """Groups configs by corpus. A control task is on the same corpus."""
    return [*group_by(configs, lambda cfg: main_data(cfg.data)).values()]


def _data(configs: Sequence[Config]) -> tuple[Corpus, Facts]:
    """Loads the corpus of these configs and describes it."""
    cfg = configs[0]
    corpus = load_corpus(cfg.data)
    for data in {one.data for one in configs}:
        derived(corpus, data)  # refuses a control task that cannot be made
    counts = corpus.counts()
    kinds = Counter(
        kind for split in corpus.splits.values() for tags in split.tags for kind, _, _ in corpus.task.items(tags)
    )
    controls = [one.data.control is not None for one in configs]
    first = corpus.splits["train"].take([0]).by_unit(corpus.task.units)
    is_standard = "conll2003" in corpus.name or all(counts[name].words == CONLL2003[name].words for name in counts)
    return corpus, {
        "name": corpus.name,
        "source": cfg.data.path or f"{cfg.data.hub} on the Hub at {corpus.about['commit'][:10]}",
        "scheme": corpus.about.get("scheme"),
        "splits": {name: asdict(count) for name, count in counts.items()},
        "kinds": dict(kinds.most_common()),
        "first_sentence": [[word, tag] for word, tag in zip(first.words[0], first.tags[0], strict=True)],
        "control_runs": [sum(controls), len(controls)],
        "notes": list(corpus.notes),
        "differences_from_conll2003": _differences_from_standard(counts) if is_standard else None,
        "warnings": _as_facts(data_warnings(corpus, configs)),
    }


def _differences_from_standard(counts: dict[str, SplitCounts]) -> list[Facts]:
    """Returns the counts that differ from those of CoNLL-2003's standard files."""
    found = []
    for split, count in counts.items():
        standard = asdict(CONLL2003[split])
        for name, ours in asdict(count).items():
            if ours is not None and standard[name] is not None and ours != standard[name]:
                found.append({"split": split, "count": name, "here": ours, "standard": standard[name]})
    return found


def _as_facts(warnings: Sequence[DataWarning]) -> list[Facts]:
    return [warning._asdict() for warning in warnings]


def _encoder(cfg: Config) -> tuple[Encoder, Facts]:
    encoder = open_encoder(cfg.encoder, Path(cfg.features.cache_dir))
    model: Any = load_model(encoder, "cpu")
    drawn = encoder.fingerprint.get("random")
    return encoder, {
        "name": encoder.name,
        "source": encoder.source,
        "commit": encoder.commit,
        "random_weights": drawn,
        "weights": None if drawn else encoder.fingerprint["weights"],
        "num_layers": encoder.num_layers,
        "hidden_size": encoder.hidden_size,
        "pieces_at_once": encoder.limit,
        "causal": model.is_causal,
        "takes_padding": model.takes_padding,
        "notes": notes_on(encoder, model, cfg.features.subword),
    }


def _device(cfg: Config) -> tuple[str, Facts]:
    device = resolve_device(cfg.device)
    return device, {
        "device": device,
        "name": hardware(device, num_cores()).device_name,
        "cores": num_cores(),
        "bfloat16": bfloat16_kernels(cfg, device),
    }


def _layers(cfg: Config, encoder: Encoder) -> tuple[None, Facts]:
    from probe.runs.plan import refuse_unstored

    kind = kind_of(cfg)
    selection = select(kind.prepare(cfg).layers, encoder.num_layers, encoder.hidden_size)
    if kind.reads_features:
        refuse_unstored(cfg, selection, encoder)
    return None, {
        "chosen": selection.as_text(),
        "indices": list(selection.indices),
        "combine": selection.combine,
        "of": encoder.num_layers,
        "width": selection.width,
        "note": kind.layers_note,
    }


def _store(configs: Sequence[Config], corpus: Corpus, encoder: Encoder, device: str) -> tuple[dict[str, float], Facts]:
    """Describes, for the first config, what is stored and the scale of its layers.

    Also returns the seconds that extraction takes, by the store's key, if anything is missing. Rows of any config that
    add up layers of different scale get a warning.
    """
    cfg = configs[0]
    store = FeatureStore.of(corpus, encoder, cfg.features)
    missing, shards = store.missing(), [shard for shards in store.shards.values() for shard in shards]
    texts = cut_texts(corpus, encoder, cfg.features)
    facts: Facts = {
        "folder": str(store.directory.parent),
        "key": store.key,
        "layers": store.layers_as_text() if len(store.layers) <= store.num_layers else None,
        "shards": len(shards),
        "shards_there": len(shards) - len(missing),
        "bytes": store.bytes_of(shards),
        "notes": notes_on_pieces(texts["train"].pieces, encoder.tokenizer, encoder.name),
    }
    if not missing:
        try:
            scales = scales_in(store, store.layers)
        except DamagedShard as damaged:
            return {}, facts | {"damaged": str(damaged)}
        return {}, facts | _scales(configs, encoder, store, scales)
    if reason := store.why_no_room(missing):
        raise UserError(reason)
    states: list[torch.Tensor] = []
    facts["extract_s"] = extraction_s(cfg, texts, encoder, store, device, states.append)
    facts["extract_bytes"] = store.bytes_of(missing)
    return {store.key: facts["extract_s"]}, facts | _scales(configs, encoder, store, scales_of(map(list, states)))


def _scales(configs: Sequence[Config], encoder: Encoder, store: FeatureStore, scales: Scales) -> Facts:
    """Returns the scale of each stored layer, and a warning for each row that adds up layers of different scale."""
    norms, deviations = (dict(zip(store.layers, given, strict=True)) for given in scales)
    warnings: dict[str, DataWarning] = {}
    for cfg in configs:
        if not kind_of(cfg).reads_features or (cfg.encoder, cfg.features) != (configs[0].encoder, configs[0].features):
            continue
        selection = select(cfg.layers, encoder.num_layers, encoder.hidden_size)
        added = [deviations[layer] for layer in selection.indices if layer in deviations]
        if adds_unlike(selection.combine, selection.normalize, added):
            message = f"{unlike_layers(selection.name, selection.combine, added)}: {REMEDY}"
            warnings[selection.name] = DataWarning("layers of different scale", message)
    return {
        "norms": {layer: float(norm) for layer, norm in norms.items()},
        "deviations": {layer: float(deviation) for layer, deviation in deviations.items()},
        "warnings": _as_facts([*warnings.values()]),
    }


def _windows(cfg: Config, corpus: Corpus, encoder: Encoder, device: str | None) -> tuple[None, Facts]:
    """Describes, for fine-tuning, how many windows the encoder processes and, given a device, how long that takes."""
    from probe.runs.plan import plan

    facts: Facts = {name: len(text.windows) for name, text in cut_texts(corpus, encoder, cfg.features).items()}
    if device is not None and not (planned := plan(cfg)).is_done:
        facts["train_s"] = planned.kind.training_s(planned.fit_inputs())
    return None, facts


def _results(cfg: Config, runs: bool) -> tuple[None, Facts]:
    """Describes the results folder. runs: whether a run can be planned, so that its record can be found."""
    from probe.runs.plan import plan

    folder = Path(cfg.results_dir)
    if reason := next(filter(None, map(why_not_writable, (folder / "records", folder / "logs"))), None):
        raise UserError(f"results_dir={cfg.results_dir}: {reason}. To use another folder: results_dir=DIR.")
    if not runs or not (planned := plan(cfg)).is_done:
        return None, {"folder": str(folder), "is_done": False, "bad_record": None}
    problem = problem_of_record(planned.record_path)
    return None, {"folder": str(folder), "is_done": problem is None, "bad_record": problem and str(problem)}
