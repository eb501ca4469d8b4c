"""Is everything here for a run? Data, layers, encoder, store, device, results; what is missing, and what to type.

Data that can be read but is probably not what was meant gets a warning, named again in the last line.

Extracts nothing, but runs the encoder briefly to measure it; what is only on the Hub is downloaded into the Hub's own
cache, as for a run.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tabulate import tabulate

from probe.conditions import derived, main_data
from probe.config import Config, DataConfig, UserError
from probe.data.corpus import Corpus, load_corpus
from probe.data.split import Split, SplitCounts
from probe.doctor.cost import cost_of_sweep, extraction_s
from probe.doctor.data_warnings import DataWarning, data_warnings, first_sentence
from probe.encoders.checkpoint import Encoder, open_encoder
from probe.features.store import DamagedShard, FeatureStore
from probe.features.words import Text
from probe.probes.kinds import bfloat16_kernels, kind_of
from probe.probes.normalization import Scales, scales_in, scales_of
from probe.probes.scales import REMEDY, adds_unlike, unlike_layers
from probe.probes.selection import select
from probe.runs.outputs import problem_of_record
from probe.system import hub
from probe.system.bfloat16 import SLOW
from probe.system.files import canonical, short, why_not_writable
from probe.system.format import duration, escape_invisible, pluralize
from probe.system.machine import num_cores, resolve_device
from probe.system.provenance import hardware, versions
from probe.tables.published import CONLL2003

if TYPE_CHECKING:
    import torch

COUNTED = {  # parts of SplitCounts, as people read them
    "documents": "documents",
    "sentences": "sentences",
    "words": "words",
    "spans": "spans",
    "tags": "different tags",
    "span_words": "entity words",
    "longest": "longest sentence",
}


def examine(cfg: Config, log: Callable[[str], None], sweep: Sequence[Config] = ()) -> bool:
    """Reports on each part in turn through `log`. Returns whether a run would work.

    sweep: the settings of all runs, if there are several; `cfg` is the first. All their corpora are then looked at, and
    their cost is reported too.
    """
    failed: list[str] = []

    def check(name: str, look: Callable[[], tuple[Any, list[str]]]) -> Any:
        try:
            found, lines = look()
            mark = "ok"
        except UserError as error:
            failed.append(name)
            found, lines, mark = None, str(error).splitlines(), "ERROR"
        for i, line in enumerate(lines):
            log(f"{name if not i else '':<8}  {mark if not i else '':<7}  {line}".rstrip())
        return found

    kind = kind_of(cfg)
    odd: list[DataWarning] = []
    corpora = [check("data", partial(_data, configs, odd)) for configs in _by_corpus([cfg, *sweep])]
    corpus = corpora[0]
    encoder = check("encoder", lambda: _encoder(cfg))
    device = check("device", lambda: _device(cfg))
    if encoder is not None:
        check("layers", lambda: _layers(cfg, encoder))
    if corpus is not None and encoder is not None and device is not None and kind.reads_features:
        check("store", lambda: _store([cfg, *sweep], corpus, encoder, device, odd))
    if corpus is not None and encoder is not None and kind.is_trained and not kind.reads_features:
        check("windows", lambda: _windows(cfg, corpus, encoder, device if len(sweep) < 2 else None))
    check("results", lambda: _results(cfg, runs=not failed))
    if len(sweep) > 1 and not failed:
        check("sweep", lambda: (None, cost_of_sweep(sweep)))
    installed = (f"{name} {version}" for name, version in versions().items() if version)
    log(f"{'versions':<18} " + ", ".join(installed))
    answers = "it answers" if hub.reachable() else f"no answer within {hub.limit_s():g} s (or HF_HUB_OFFLINE is set)"
    log(f"{'Hub':<18} {answers}; {'needed for' if failed else 'asked only for'} what is not here")
    names = ", ".join(dict.fromkeys(one.name for one in odd))
    look = f" Look first at: {names} (WARNING, above)." if odd else ""
    log(f"This run would fail: {', '.join(dict.fromkeys(failed))}.{look}" if failed else f"This run would work.{look}")
    return not failed


def _by_corpus(configs: Sequence[Config]) -> list[list[Config]]:
    """The configs of each corpus. A control task, or a share of train, is the same corpus."""
    groups: list[list[Config]] = []
    for cfg in configs:
        group = next((one for one in groups if main_data(one[0].data) == main_data(cfg.data)), None)
        if group is None:
            groups.append([cfg])
        else:
            group.append(cfg)
    return groups


def _data(configs: Sequence[Config], odd: list[DataWarning]) -> tuple[Corpus, list[str]]:
    """The corpus of these configs, shown as the first has it. What is odd about it is added to `odd`."""
    cfg = configs[0]
    corpus = load_corpus(cfg.data)

    @cache
    def learnt(data: str, seed: int) -> Split:
        return derived(corpus, DataConfig(**json.loads(data)), seed)[0].splits["train"]

    trained_on = []
    for one in configs:
        share = one.data.train_fraction
        trained_on.append((one, learnt(canonical(asdict(one.data)), one.seed if share else 0)))
    where = cfg.data.path or f"{cfg.data.hub} on the Hub at {corpus.about['commit'][:10]}"
    scheme = f", tags in {corpus.about['scheme']}" if "scheme" in corpus.about else ", tags as they are"
    counts = corpus.counts()
    counted = [name for name in COUNTED if name == "documents" or getattr(counts["train"], name) is not None]
    rows = [
        [name, *("unknown" if (n := getattr(count, column)) is None else f"{n:,}" for column in counted)]
        for name, count in counts.items()
    ]
    headers = ["split", *(COUNTED[name] for name in counted)]
    table = tabulate(rows, headers, disable_numparse=True, colalign=("left", *["right"] * len(counted)))
    kinds = Counter(
        kind for split in corpus.splits.values() for tags in split.tags for kind, _, _ in corpus.task.items(tags)
    )
    shown = ", ".join(f"{escape_invisible(kind)} {count:,}" for kind, count in kinds.most_common(20))
    more = f" and {len(kinds) - 20} more" if len(kinds) > 20 else ""
    lines = [
        f"{corpus.name}, from {where}{scheme}",
        *table.splitlines(),
        f"{pluralize(len(kinds), 'kind')}: {shown}{more}",
    ]
    lines.append(first_sentence(corpus.splits["train"]))
    controls = [one.data.control is not None for one in configs]
    if any(controls):
        of = "" if all(controls) else "some runs: "
        lines.append(f"{of}control task: each word or mention has a tag drawn at random")
    sentences = [len(train.words) for _, train in trained_on]
    if min(sentences) < counts["train"].sentences:
        shown = " to ".join(f"{n:,}" for n in sorted({min(sentences), max(sentences)}))
        lines.append(f"trained on {shown} of these sentences")
    lines += [f"note: {note}" for note in corpus.notes]
    if "conll2003" in corpus.name or all(counts[name].words == CONLL2003[name].words for name in counts):
        lines.append(_beside_standard(counts))
    warnings = data_warnings(corpus, trained_on)
    odd += warnings
    return corpus, [*lines, *(f"WARNING: {one.message}" for one in warnings)]


def _beside_standard(counts: dict[str, SplitCounts]) -> str:
    pairs = [
        (split, COUNTED[name], getattr(counts[split], name), getattr(CONLL2003[split], name))
        for split in counts
        for name in COUNTED
    ]
    odd = [
        f"{split} has {ours:,} {name}, not {standard:,}"
        for split, name, ours, standard in pairs
        if ours is not None and standard is not None and ours != standard
    ]
    return f"not the standard files of CoNLL-2003: {'; '.join(odd)}" if odd else "these are the standard files"


def _encoder(cfg: Config) -> tuple[Encoder, list[str]]:
    encoder = open_encoder(cfg.encoder, Path(cfg.features.cache_dir))
    at = f" at {encoder.commit[:10]}" if encoder.commit else ""
    return encoder, [
        f"{encoder.name}, from {encoder.source}{at}; {_weights(encoder)}",
        f"layers 0 to {encoder.num_layers}, {encoder.hidden_size} wide; {encoder.limit} pieces at once",
    ]


def _weights(encoder: Encoder) -> str:
    drawn = encoder.fingerprint.get("random")
    return f"random weights ({drawn})" if drawn else f"weights {short(encoder.fingerprint['weights'])}"


def _device(cfg: Config) -> tuple[str, list[str]]:
    device = resolve_device(cfg.device)
    lines = [f"{device}: {hardware(device, num_cores()).device_name}; {num_cores()} cores for this process"]
    match bfloat16_kernels(cfg, device):
        case "native":
            lines.append("bfloat16: native")
        case "pytorch":
            lines.append(SLOW[device])
    return device, lines


def _layers(cfg: Config, encoder: Encoder) -> tuple[None, list[str]]:
    from probe.runs.plan import refuse_unstored

    kind = kind_of(cfg)
    selection = select(kind.prepare(cfg).layers, encoder.num_layers, encoder.hidden_size)
    if kind.reads_features:
        refuse_unstored(cfg, selection, encoder)
    text = f"{selection.as_text()} (of {encoder.num_layers}){kind.layers_note}"
    return None, [f"{text}, {selection.width} values per word"]


def _store(
    configs: Sequence[Config], corpus: Corpus, encoder: Encoder, device: str, odd: list[DataWarning]
) -> tuple[None, list[str]]:
    """Of the first config: what is stored, and the scale of its layers. A row of any config that adds up layers of
    unlike scale is added to `odd`."""
    cfg = configs[0]
    store = FeatureStore.of(corpus, encoder, cfg.features).serving()
    missing, shards = store.missing(), [shard for shards in store.shards.values() for shard in shards]
    head = (
        f"{store.directory.parent}, key {short(store.key)}: {len(shards) - len(missing)} of {len(shards)} shards there"
    )
    head = head if store.holds_all else f"{head} ({store.layers_as_text()})"
    if not missing:
        head = f"{head}, {store.bytes_of(shards) / 1e9:.2f} GB"
        try:
            scales = scales_in(store, store.layers)
        except DamagedShard as damaged:
            return None, [head, f"{damaged}. A run extracts it again"]
        lines, warnings = _scales(configs, encoder, store, scales)
        odd += warnings
        return None, [head, *lines]
    if reason := store.why_no_room(missing):
        raise UserError(reason)
    states: list[torch.Tensor] = []
    left_s = extraction_s(cfg, corpus, encoder, store, device, states.append)
    lines, warnings = _scales(configs, encoder, store, scales_of(map(list, states)))
    odd += warnings
    return None, [
        head,
        f"to extract: {store.bytes_of(missing) / 1e9:.2f} GB, {duration(left_s)} on this machine",
        *lines,
    ]


def _scales(
    configs: Sequence[Config], encoder: Encoder, store: FeatureStore, scales: Scales
) -> tuple[list[str], list[DataWarning]]:
    """The scale of each stored layer in two lines, and a warning for each row that adds up layers of unlike scale."""
    norms, deviations = (dict(zip(store.layers, given, strict=True)) for given in scales)
    lines = [
        f"norm of a vector by layer: {', '.join(f'{layer}: {norm:.3g}' for layer, norm in norms.items())}",
        f"deviation per feature by layer: {', '.join(f'{layer}: {one:.3g}' for layer, one in deviations.items())}",
    ]
    warnings: dict[str, DataWarning] = {}
    for cfg in configs:
        if not kind_of(cfg).reads_features or (cfg.encoder, cfg.features) != (configs[0].encoder, configs[0].features):
            continue
        selection = select(cfg.layers, encoder.num_layers, encoder.hidden_size)
        added = [deviations[layer] for layer in selection.indices if layer in deviations]
        if adds_unlike(selection.combine, selection.normalize, added):
            message = f"{unlike_layers(selection.name, selection.combine, added)}: {REMEDY}"
            warnings[selection.name] = DataWarning("layers of unlike scale", message)
    return [*lines, *(f"WARNING: {one.message}" for one in warnings.values())], [*warnings.values()]


def _windows(cfg: Config, corpus: Corpus, encoder: Encoder, device: str | None) -> tuple[None, list[str]]:
    """Of fine-tuning, which reads no store: what goes through the encoder, and on a device for how long."""
    from probe.runs.fit import fit_inputs
    from probe.runs.plan import plan

    windows = {name: len(Text(corpus, name, encoder, cfg.features).windows) for name in corpus.splits}
    lines = [", ".join(f"{name} {number:,}" for name, number in windows.items())]
    if device is not None and not (planned := plan(cfg)).is_done:
        lines.append(f"to train: {duration(planned.kind.training_s(fit_inputs(planned)))} on this machine")
    return None, lines


def _results(cfg: Config, runs: bool) -> tuple[None, list[str]]:
    from probe.runs.plan import plan

    folder = Path(cfg.results_dir)
    if reason := next(filter(None, map(why_not_writable, (folder / "records", folder / "logs"))), None):
        raise UserError(f"results_dir={cfg.results_dir}: {reason}. Another: results_dir=DIR.")
    if not runs or not (planned := plan(cfg)).is_done:
        return None, [f"{folder}"]
    problem = problem_of_record(planned.record_path)
    return None, [f"{folder}; {problem or 'this run is done already'}"]
