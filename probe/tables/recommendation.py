"""Recommends the cheapest row of a table that is shown to lie within the margin of the best one.

Cost is compared by the operations of the encoder blocks needed, then by the width of the vectors. Of one encoder, fewer
operations are fewer blocks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from probe.conditions import MAIN
from probe.format import first_few, format_count, percent, pluralize, points, short_name
from probe.probes.kinds import describe_probe
from probe.runs.records import remedy_of
from probe.scoring.compare import MORE_SEEDS
from probe.scoring.significance import IF_INDEPENDENT
from probe.tables.labels import BEST, UNDECIDED, WORSE, cheapest_within
from probe.tables.notes import MOST_NAMED, covered, rising
from probe.tables.row import Row

FEW_ERRORS = 20  # of the best row on dev: with fewer, little is left that could differ


@dataclass(frozen=True, repr=False)
class Recommendation:
    """Holds which row to use. `str()` and `repr()` give the sentences.

    best: the row with the highest dev mean. use: the cheapest row within the margin, or the best where no row is shown
    to be within; None if nothing can be recommended. within: whether `use` is, not on this text alone. undecided:
    cheaper rows that could be, the likeliest first. text: the sentences.
    """

    best: Row | None = None
    use: Row | None = None
    within: bool = False
    undecided: list[Row] = field(default_factory=list)
    text: str = ""

    def __repr__(self) -> str:
        return self.text


def recommend(rows: Sequence[Row]) -> Recommendation:
    """Recommends a row of one table, its rows as `labels.label_rows` leaves them."""
    without_layers = [row for row in rows if not row.indices and row.n]
    rows = [row for row in rows if row.section == MAIN]
    best = next((row for row in rows if row.label == BEST), None)
    if best is None:
        return Recommendation(text=f"No recommendation yet: {_why_none(rows)}.")
    ranked = [row for row in rows if row.behind]
    bounds, means = [row.behind or [] for row in ranked], [row.dev_mean for row in ranked]
    place = cheapest_within(bounds, [row.cost for row in ranked], means, best.margin / 100)
    use = best if place is None else ranked[place]
    undecided = [row for row in ranked if row.label == UNDECIDED and row.cost < use.cost]
    undecided.sort(key=lambda row: row.most_behind)
    last = [row for row in rows if row.n and not row.unconverged and row.is_single and row.num_blocks == row.num_layers]
    last = [row for row in last if row.encoder == use.encoder and row not in (use, best)]
    sentences = [*_ahead(rows, best), *_unseen(ranked, best), *_sentences(use, best, place is not None, undecided)]
    text = " ".join([*sentences, *(_over_last(use, row) for row in last[:1]), *_as_good(without_layers, use)])
    return Recommendation(best, use, place is not None and best.visible < 1, undecided, text)


def sentence(rows: Sequence[Row]) -> str:
    """Says in a sentence for a paper what one table compared, how, and what came out; and in another, its limits."""
    recommended = recommend(rows)
    use, best = recommended.use, recommended.best
    if use is None or best is None:
        return recommended.text
    ranked = [row for row in rows if row.behind]
    least, most = min(row.n for row in ranked), max(row.n for row in ranked)
    seeds, score = f"{least}{f' to {most}' if most > least else ''} seeds each", use.task.headline.name
    splits = use.record.data.splits
    sizes = ", ".join(f"{split} {getattr(splits, split).sentences:,}" for split in ("train", "dev", "test"))
    epochs = max(len(run.curve) for row in ranked for run in row.records.values())
    scales = {str(row.identity.layers.normalize) for row in ranked}
    scale = f"layers.normalize={scales.pop()}, " if len(scales) == 1 and use.identity.layers.normalize else ""
    training = f"{describe_probe(use.setting.probe)} ({scale}trained for up to {epochs} epochs)"
    setting = f"{training} on {use.setting.data} ({sizes} sentences; {seeds})"
    scored = f"dev {score} {percent(use.dev_mean)}, test {score} {percent(use.cell('test').mean or 0.0)}"
    behind = f"lies at most {percent(use.most_behind)} points behind" if use.most_behind else "is not behind"
    result = f"{behind} the truly best of them"
    if use is not best:
        margin = points(best.margin)
        result = f"is the cheapest that is shown to lie within {margin} of the truly best of them, and {behind} it"
    limits = []
    if unranked := [row for row in rows if row.section == MAIN and row.unconverged]:
        limits.append(f"not ranked because not converged: {first_few([row.title for row in unranked], MOST_NAMED)}")
    if still := rising(ranked):
        limits.append(f"{first_few([*still], MOST_NAMED)} still rose when training ended")
    if best.looks > 1:
        limits.append(f"the scores may have been looked at {best.looks} times, which the intervals allow for")
    if chosen := [row.title for row in ranked if row.screened]:
        limits.append(f"{first_few(chosen, MOST_NAMED)} had been chosen by a screen of the same dev text")
    bounds = f" Limits: {'; '.join(limits)}." if limits else ""
    encoders = " and ".join(dict.fromkeys(short_name(row.setting.encoder) for row in [*ranked, *unranked]))
    return (
        f"Of {len(ranked) + len(unranked)} choices of layers of {encoders} as features for a "
        f"{setting}, {use.title} ({scored}) {result} (chosen on dev; 95 % "
        f"confidence for all rows at once over {covered(use)}; multiple comparisons with the best, Hsu 1984).{bounds}"
    )


def _why_none(rows: Sequence[Row]) -> str:
    if not any(row.n for row in rows):
        return "no run is done" if rows else "there is no row to compare with another"
    ranked = [row for row in rows if row.n and not row.unconverged]
    if max((row.n for row in ranked), default=0) == 1:
        return "every row has one seed, and the seed alone moves a score by about a point; type seed=1,2,3"
    return "one row alone cannot be compared" if 1 in (len(rows), len(ranked)) else "no two rows converged"


def _ahead(rows: Sequence[Row], best: Row) -> Iterator[str]:
    """Names a row that scores higher than the best but is not ranked, and says what to type."""
    ahead = [row for row in rows if row.unconverged and row.dev_mean > best.dev_mean]
    if ahead:
        row = max(ahead, key=lambda row: row.dev_mean)
        ended = row.unconverged[0]
        yield (
            f"{row.title} has a higher dev {row.task.headline.name}, {percent(row.dev_mean)}, but is not ranked: "
            f"{ended.label} {remedy_of(ended)}"
        )


def _unseen(ranked: Sequence[Row], best: Row) -> Iterator[str]:
    """Says that dev does not separate the rows, if so."""
    sentences = f"dev's {pluralize(best.record.data.splits.dev.sentences, 'sentence')}"
    are_alike = all(row.label in (BEST, UNDECIDED) for row in ranked)
    has_few_errors = best.errors < FEW_ERRORS and not best.task.is_ranked
    if are_alike or (has_few_errors and all(row.label != WORSE for row in ranked)):
        wrong = f"only {best.errors:.0f} items" if best.errors >= 0.5 else "no item"
        few = f"{best.title} gets {wrong} of dev wrong, and " * has_few_errors
        shown = f"differences below {percent(best.visible)} points" if best.visible < 1 else "any difference"
        yield f"This text does not separate the layers: {few}{sentences} cannot show {shown}."
    if best.visible >= 1:
        yield f"They are {best.cover.units}: what others would show is not known. Mark documents, or take more of them."


def _sentences(use: Row, best: Row, is_within: bool, undecided: Sequence[Row]) -> Iterator[str]:
    score = best.task.headline.name
    margin = points(best.margin)
    sure = f"95 % confidence, over seeds{' and text' if best.over_text else ', on this dev text'}"
    lies = f"lies at most {percent(use.most_behind)} points behind the truly best row ({sure})"
    head = f"Use {use.title} (layer{'s' * (len(use.indices) > 1)} {use.layers_as_text}): it"
    if best.cover.condition == IF_INDEPENDENT:
        head = f"If dev's sentences are independent, u{head[1:]}"
    if best.visible >= 1:
        yield f"On these sentences, {best.title} has the best dev {score}, {percent(best.dev_mean)}."
        return
    if use is not best:
        lower = percent(best.dev_mean - use.dev_mean)
        as_high = "as high as" if lower == percent(0) else f"{lower} points lower than"
        yield f"{head} is the cheapest row that is shown to lie within {margin} of the truly best one."
        yield f"Its dev {score} is {as_high} that of the best row here, {best.title}, and it {lies}."
        yield f"It needs {_saved(use, best)}."
    elif percent(use.most_behind) == percent(0):
        yield f"{head} has the best dev {score}, {percent(use.dev_mean)}, and no other row is better ({sure})."
    else:
        yield f"{head} has the best dev {score}, {percent(use.dev_mean)}, and {lies}."
    if best.cover.condition == IF_INDEPENDENT:
        yield (
            "Nothing shows that they are: if neighbours have no rare words in common, each sentence is a text of its "
            "own, or they were shuffled. Name the document of each sentence (data.document_field), or type "
            "data.order=document if they are in order, data.order=independent if no two belong together."
        )
    if not is_within:
        yield f"No row is shown to lie within {margin} of the truly best one."
    if undecided:
        likely = min(undecided, key=lambda row: row.loss or 0.0)
        loses = f"is expected to lose {percent(likely.loss or 0.0)} points"
        loses = f", which {loses}" if len(undecided) == 1 else f"; {likely.title} {loses}"
        yield f"Cheaper, but undecided: {first_few([row.title for row in undecided], 4)}{loses}."
        yield _effort(likely)


def _over_last(use: Row, last: Row) -> str:
    difference = use.dev_mean - last.dev_mean
    few = f" ({pluralize(last.n, 'seed')})" * (last.n < use.n)
    parts = [f"is {percent(abs(difference))} points {'below' if difference >= 0 else 'above'} {use.title}"]
    parts += [f"needs {last.num_blocks} instead of {use.num_blocks} blocks"] * (use.num_blocks != last.num_blocks)
    parts += [f"has {last.width} instead of {use.width} features"] * (use.width != last.width)
    return f"The last layer{few} {' and '.join([', '.join(parts[:-1]), parts[-1]] if parts[1:] else parts)}."


def _as_good(without_layers: Sequence[Row], use: Row) -> Iterator[str]:
    """Names a baseline that reads no layer and is not clearly worse: then the score is no evidence for the encoder."""
    for row in without_layers:
        if row.dev_mean >= use.dev_mean - use.margin / 100:
            yield f"{row.title} has {percent(row.dev_mean)} without any layer, so the encoder may add nothing."


def _saved(use: Row, best: Row) -> str:
    (flops, width), (most, widest) = use.cost, best.cost
    parts = []
    if use.encoder != best.encoder:
        of_use, of_best = format_count(flops), format_count(most)
        parts += [f"{of_use} instead of {of_best} operations of the encoder per piece"] * (of_use != of_best)
    elif (use.num_blocks, width) != (best.num_blocks, widest):
        instead = f" instead of {best.num_blocks}" * (use.num_blocks != best.num_blocks)
        parts.append(f"{use.num_blocks}{instead} of the encoder's {use.num_layers} blocks")
    if width != widest:
        parts.append(f"{width} instead of {widest} features per word")
    return " and ".join(parts) or "as many blocks and features"


def _effort(row: Row) -> str:
    """Says how many seeds would probably show a row to lie within the margin on this text, or that many would not."""
    assert row.difference is not None
    if row.difference <= -row.margin / 100:
        return "As measured, it lies beyond the margin; if that is true, no number of seeds will show it to lie within."
    if row.seeds_needed:
        seeds = f"{row.seeds_needed} seeds of each row"
        return f"If its difference stays, {seeds} would probably show it to lie within the margin."
    helps = "; more text may" * row.over_text
    return f"Even {MORE_SEEDS[-1]} times the seeds would probably not show it to lie within the margin{helps}."
