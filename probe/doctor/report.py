"""Renders what the doctor found: as lines for people, or as JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence

from probe.doctor.doctor import Examination, Facts, Part
from probe.encoders.encoder import CAUSAL
from probe.system.bfloat16 import SLOW
from probe.system.files import short, to_jsonable
from probe.system.format import duration, escape_invisible, first_few, pluralize
from probe.tables.formats import TextTable

COUNTED = {  # counts of a split, and their names in the text
    "documents": "documents",
    "sentences": "sentences",
    "words": "words",
    "spans": "spans",
    "tags": "different tags",
    "span_words": "entity words",
    "longest": "longest sentence",
}
FIRST_WORDS = 12
MOST_KINDS = 20


def as_json(found: Examination) -> str:
    summary = {"works": found.works, "failed": found.failed, "warnings": found.warnings}
    return json.dumps(summary | to_jsonable(found), indent=1, ensure_ascii=False)


def part_lines(part: Part) -> Iterator[str]:
    """Yields the lines of one part, after its name and whether it is ok."""
    mark = "ok" if part.problem is None else "ERROR"
    lines = _LINES[part.name](part.facts) if part.problem is None else part.problem.splitlines()
    for i, line in enumerate(lines):
        yield f"{part.name if not i else '':<8}  {mark if not i else '':<7}  {line}".rstrip()


def last_lines(found: Examination) -> Iterator[str]:
    """Yields the lines below the parts; the last says whether a run would work."""
    yield f"{'versions':<18} " + ", ".join(f"{name} {version}" for name, version in found.versions.items())
    answers = "it answers" if found.hub else f"no answer within {found.hub_limit_s:g} s (or HF_HUB_OFFLINE is set)"
    yield f"{'Hub':<18} {answers}; {'needed for missing files' if found.failed else 'asked only for missing files'}"
    look = f" Check first: {', '.join(found.warnings)} (WARNING, above)." if found.warnings else ""
    yield f"This run would fail: {', '.join(found.failed)}.{look}" if found.failed else f"This run would work.{look}"


def _data(facts: Facts) -> Iterator[str]:
    scheme = f", tags in {facts['scheme']}" if facts["scheme"] else ", tags as they are"
    yield f"{facts['name']}, from {facts['source']}{scheme}"
    splits: Mapping[str, Mapping[str, int | None]] = facts["splits"]
    counted = [name for name in COUNTED if name == "documents" or splits["train"][name] is not None]
    rows = [
        [split, *("unknown" if (n := counts[name]) is None else f"{n:,}" for name in counted)]
        for split, counts in splits.items()
    ]
    headers = ["split", *(COUNTED[name] for name in counted)]
    yield from TextTable(headers, rows, [True, *[False] * len(counted)]).body().splitlines()
    kinds: Mapping[str, int] = facts["kinds"]
    shown = [f"{escape_invisible(kind)} {count:,}" for kind, count in kinds.items()]
    yield f"{pluralize(len(kinds), 'kind')}: {first_few(shown, MOST_KINDS)}"
    yield first_sentence(facts["first_sentence"])
    num_controls, num_runs = facts["control_runs"]
    if num_controls:
        of = "" if num_controls == num_runs else "some runs: "
        yield f"{of}control task: each word or mention has a tag drawn at random"
    yield from (f"note: {note}" for note in facts["notes"])
    if facts["differences_from_conll2003"] is not None:
        yield _against_standard(facts["differences_from_conll2003"])
    yield from _warnings(facts)


def first_sentence(pairs: Sequence[Sequence[str]]) -> str:
    """Formats the words of a sentence, each with its tag, as they were read."""
    shown = [f"{escape_invisible(word)} {escape_invisible(tag)}" for word, tag in pairs]
    return f"the first sentence, with its tags: {first_few(shown, FIRST_WORDS, ' | ')}"


def _against_standard(differences: Sequence[Facts]) -> str:
    texts = [f"{d['split']} has {d['here']:,} {COUNTED[d['count']]}, not {d['standard']:,}" for d in differences]
    return f"not the standard files of CoNLL-2003: {'; '.join(texts)}" if texts else "these are the standard files"


def _warnings(facts: Facts) -> Iterator[str]:
    return (f"WARNING: {warning['message']}" for warning in facts["warnings"])


def _encoder(facts: Facts) -> Iterator[str]:
    at = f" at {facts['commit'][:10]}" if facts["commit"] else ""
    drawn = facts["random_weights"]
    weights = f"random weights ({drawn})" if drawn else f"weights {short(facts['weights'])}"
    yield f"{facts['name']}, from {facts['source']}{at}; {weights}"
    yield f"layers 0 to {facts['num_layers']}, {facts['hidden_size']} wide; {facts['pieces_at_once']} pieces at once"
    yield CAUSAL[facts["causal"]]
    if not facts["takes_padding"]:
        yield "padding would change its vectors, so only texts of equal length are computed together"
    yield from facts["notes"]


def _device(facts: Facts) -> Iterator[str]:
    yield f"{facts['device']}: {facts['name']}; {facts['cores']} cores for this process"
    if facts["bfloat16"] is not None:
        yield "bfloat16: native" if facts["bfloat16"] == "native" else SLOW[facts["device"]]


def _layers(facts: Facts) -> Iterator[str]:
    yield f"{facts['chosen']} (of {facts['of']}){facts['note']}, {facts['width']} values per word"


def _store(facts: Facts) -> Iterator[str]:
    head = f"{facts['folder']}, key {short(facts['key'])}: {facts['shards_there']} of {facts['shards']} shards there"
    head += f" ({facts['layers']})" if facts["layers"] else ""
    is_whole = facts["shards_there"] == facts["shards"]
    yield f"{head}, {facts['bytes'] / 1e9:.2f} GB" if is_whole else head
    if "damaged" in facts:
        yield f"{facts['damaged']}. A run extracts it again"
        return
    if not is_whole:
        yield f"to extract: {facts['extract_bytes'] / 1e9:.2f} GB, {duration(facts['extract_s'])} on this machine"
    yield from facts["notes"]
    yield f"norm of a vector by layer: {_by_layer(facts['norms'])}"
    yield f"deviation per feature by layer: {_by_layer(facts['deviations'])}"
    yield from _warnings(facts)


def _by_layer(values: Mapping[int, float]) -> str:
    return ", ".join(f"{layer}: {value:.3g}" for layer, value in values.items())


def _windows(facts: Facts) -> Iterator[str]:
    yield ", ".join(f"{name} {number:,}" for name, number in facts.items() if name != "train_s")
    if "train_s" in facts:
        yield f"to train: {duration(facts['train_s'])} on this machine"


def _results(facts: Facts) -> Iterator[str]:
    done = "; this run is already done" if facts["is_done"] else ""
    yield f"{facts['folder']}{done}" + (f"; {facts['bad_record']}" if facts["bad_record"] else "")


def _sweep(facts: Facts) -> Iterator[str]:
    yield f"{pluralize(facts['runs'], 'run')}, {facts['to_make']} not done yet"
    if extract := facts.get("extract"):
        stores = pluralize(extract["stores"], "store")
        yield f"to extract: {stores}, {extract['bytes'] / 1e9:.2f} GB, {duration(extract['s'])}"
    if train := facts.get("train"):
        least, most = train["s"]
        fewest, at_most = train["epochs"]
        yield (
            f"to train: {duration(least)} to {duration(most)}, {train['at_once']} at once; runs take {fewest} to "
            f"{at_most} epochs"
        )
    if tune := facts.get("fine_tune"):
        yield f"to fine-tune: {pluralize(tune['runs'], 'run')}, {duration(tune['s'])}"


_LINES: dict[str, Callable[[Facts], Iterator[str]]] = {
    "data": _data,
    "encoder": _encoder,
    "device": _device,
    "layers": _layers,
    "store": _store,
    "windows": _windows,
    "results": _results,
    "sweep": _sweep,
}
