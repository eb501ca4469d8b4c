"""Checks what runs need: data, encoder, device, results folder, cost. Says what is missing and what to type.

Data that can be read but is probably not the intended data gets a warning.

Extracts nothing, but runs encoder and probes briefly to measure them. Files on the Hub are downloaded into the Hub's
own cache, as for a run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

from probe.config import Config, UserError
from probe.data.corpus import BUNDLED, load_corpus
from probe.data.warnings import WARNING
from probe.doctor.cost import cost_lines
from probe.doctor.power import dev_line, power_lines
from probe.encoders.encoder import Encoder
from probe.encoders.model import load_model, notes_on
from probe.format import escape_invisible, first_few, pluralize
from probe.runs.plan import one_per_encoder
from probe.system.files import short, why_not_writable
from probe.system.grouping import group_by
from probe.system.machine import num_cores, resolve_device
from probe.system.provenance import hardware
from probe.vectors.sources import open_source

FIRST_WORDS = 12
MOST_KINDS = 20


@dataclass(frozen=True)
class Part:
    """Holds one thing that runs need. lines: what was found or, if it is not ok, what is missing and what to type."""

    name: str
    ok: bool
    lines: list[str]

    @property
    def num_warnings(self) -> int:
        return sum(line.startswith(WARNING) for line in self.lines)

    def text(self) -> str:
        first, *others = self.lines
        head = f"{self.name:<8}  {'ok' if self.ok else 'ERROR':<7}  "
        return "\n".join([f"{head}{first}", *(" " * len(head) + line for line in others)])


def examine(configs: Sequence[Config], like: Path | None = None) -> Iterator[Part]:
    """Examines each part in turn: all corpora and encoders, the first run's device and folder, the cost of all runs.

    like: a results folder, whose variances say which differences the runs could show.
    """
    cfg = configs[0]
    of_one_corpus = group_by(configs, lambda one: replace(one.data, control=None)).values()
    encoders = one_per_encoder(configs)
    # A wrong path is said at once: to load an encoder, or torch for the device, takes seconds.
    if is_lost := any(_is_missing(path) for one in configs for path in (one.data.path, one.encoder.path)):
        encoders = [one for one in encoders if _is_missing(one.encoder.path)]
    looks: list[tuple[str, Callable[[], list[str]]]] = [
        *(("data", partial(_data, same[0])) for same in of_one_corpus),
        *(("encoder", partial(_encoder, one)) for one in encoders),
        *([] if is_lost else [("device", partial(_device, cfg))]),
        ("results", partial(_results, cfg)),
    ]
    parts = []
    for name, look in looks:
        parts.append(_part(name, look))
        yield parts[-1]
    if all(part.ok for part in parts):
        yield _part("cost", partial(cost_lines, configs))
        if like:
            yield _part("power", partial(power_lines, configs, like))


def _part(name: str, look: Callable[[], list[str]]) -> Part:
    try:
        return Part(name, True, look())
    except UserError as error:
        return Part(name, False, str(error).splitlines())


def _is_missing(path: str | None) -> bool:
    return path not in (None, BUNDLED) and not Path(str(path)).expanduser().is_dir()


def _data(cfg: Config) -> list[str]:
    corpus = load_corpus(cfg.data)
    source = cfg.data.path or f"{cfg.data.hub} on the Hub at {corpus.about['commit'][:10]}"
    scheme = f"tags in {corpus.about['scheme']}" if "scheme" in corpus.about else "tags as they are"
    lines = [f"{corpus.name}, from {source}, {scheme}"]
    sentence = "sentence" if corpus.task.is_per_word else corpus.task.unit
    unread = ("words", "longest") * (cfg.data.id_field is not None)  # of vectors, ids alone
    for name, counts in corpus.counts().items():
        known = {
            f"{sentence}s" if what == "sentences" else what.replace("_", " "): number
            for what, number in asdict(counts).items()
            if number is not None and what not in unread
        }
        sizes = ", ".join(f"{what} {number:,}" for what, number in known.items())
        lines.append(f"{name}: {sizes}, from {Path(corpus.splits[name].origin).name}")
    kinds = Counter(
        kind for split in corpus.splits.values() for tags in split.tags for kind, _, _ in corpus.task.items(tags)
    )
    labels = corpus.about.get("labels")  # of a detection
    names = {kind: labels[int(kind)] if labels else kind for kind in kinds}
    shown = [f"{escape_invisible(names[kind])} {count:,}" for kind, count in kinds.most_common()]
    train = corpus.splits["train"]
    first = next(number for number, tags in enumerate(train.tags) if corpus.task.items(tags))
    lines += [
        dev_line(corpus, cfg.data.order),
        f"{pluralize(len(kinds), 'kind')}: {first_few(shown, MOST_KINDS)}",
        f"{f'first {sentence}' if first == 0 else f'{sentence} {first + 1}'}: {_first_words(train.words[first])}",
        f"{'tags' if corpus.task.is_per_word else 'label'}: {_first_words(train.tags[first])}",
    ]
    return lines + [note if note.startswith(WARNING) else f"note: {note}" for note in corpus.notes]


def _first_words(words: Sequence[str]) -> str:
    return first_few(list(map(escape_invisible, words)), FIRST_WORDS, " | ")


def _encoder(cfg: Config) -> list[str]:
    encoder = open_source(cfg.encoder, Path(cfg.features.cache_dir))
    origin = f"{encoder.name}, from {encoder.source}"
    layers = f"layers 0 to {encoder.num_layers}, {encoder.hidden_size} wide"
    if not isinstance(encoder, Encoder):
        return [origin, layers]
    model = load_model(encoder, "cpu", final_norm=cfg.features.final_norm)  # refuses weights that do not fit
    at = f" at {encoder.commit[:10]}" if encoder.commit else ""
    drawn = encoder.fingerprint.get("random")
    weights = f"random weights ({drawn})" if drawn else f"weights {short(encoder.fingerprint['weights'])}"
    return [
        f"{origin}{at}; {weights}",
        f"{layers}; {encoder.limit} pieces at once",
        *(f"note: {note}" for note in notes_on(encoder, model, cfg.features.subword)),
    ]


def _device(cfg: Config) -> list[str]:
    device, cores = resolve_device(cfg.device), num_cores()
    return [f"{device}: {hardware(device, cores).device_name}; {cores} cores for this process"]


def _results(cfg: Config) -> list[str]:
    folder = Path(cfg.results_dir)
    for reason in map(why_not_writable, (folder / "records", folder / "logs")):
        if reason:
            raise UserError(f"results_dir={cfg.results_dir}: {reason}. To use another folder: results_dir=DIR.")
    return [str(folder)]
