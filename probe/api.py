"""Defines the functions of the package `probe`, and what they return.

`choose`, `run`, `sweep` and `screen` run the command in a separate process. So settings have the same effect as on the
command line, nothing is printed, and the caller's threads and random states do not change. In a notebook and in a
terminal a bar shows how far the command is. torch and pandas are imported where they are needed; `datasets` installs
pandas.
"""

from __future__ import annotations

import base64
import html
import re
import reprlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, overload

from probe.config import UserError
from probe.data.offsets import texts_with_spans
from probe.data.split import Split
from probe.data.tasks import task_of
from probe.lists import write_inputs
from probe.runs.config_from_record import config_of_record
from probe.runs.outputs import bad_files
from probe.runs.records import RunRecord, load_record
from probe.runs.screens import ScreenRecord, load_screen
from probe.screening.report import ranked_choices, screen_table, to_train_first
from probe.settings import config_of, configs_of
from probe.system.machine import share_cores
from probe.system.progress import run_with_bar
from probe.tables.columns import choose_columns
from probe.tables.formats import as_table, render, table_values
from probe.tables.recommendation import Recommendation, recommend
from probe.tables.row import Row, tables_of
from probe.tables.rows import build_rows, results_folder
from probe.tag.io import read_running, refuse_other_tasks, select_saved_probe

if TYPE_CHECKING:
    import pandas
    import torch
    from matplotlib.figure import Figure

    from probe.export.export import Splits
    from probe.tables.figures import Picture
    from probe.tag.tagging import TrainedRow


@dataclass(frozen=True)
class Results:
    """Holds a results folder: its rows and runs as pandas DataFrames, and which row to use.

    rows: as in `probe table`. problems: a line for each run that failed and for each file that cannot be read. notes:
    what a sweep noticed in the data. Scores are fractions.
    """

    folder: Path
    rows: list[Row] = field(repr=False)
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @cached_property
    def table(self) -> pandas.DataFrame:
        """Returns one row per row of the table, with the columns of `table.csv`."""
        import pandas

        return pandas.DataFrame(table_values(self.rows))

    @cached_property
    def runs(self) -> pandas.DataFrame:
        """Returns one row per run: its row and seed, its scores, how its training ended, its cost and its record."""
        import pandas

        return pandas.DataFrame([_run_fields(row, file, one) for row in self.rows for file, one in row.records.items()])

    @property
    def recommendations(self) -> list[Recommendation]:
        """Returns the recommendation of each table, in their order."""
        return [recommend(rows) for rows in tables_of(self.rows)]

    @property
    def recommendation(self) -> Recommendation:
        """Returns which row to use.

        `str()` gives the sentence. `use` and `best` are rows, with their layers, their dev score and by how much they
        may be worse than the truly best row. Raises UserError if there are several tables.
        """
        if len(given := self.recommendations) > 1:
            raise UserError(f"{self.folder} has {len(given)} tables (of several texts, encoders or probes): "
                            "results(...).recommendations has one for each.")  # fmt: skip
        return given[0]

    def plot(self) -> Figure:
        """Draws each row's layers and its scores with their intervals. Raises UserError for several tables."""
        from matplotlib import pyplot

        if len(shown := self._pictures) != 1:
            raise UserError(f"{self.folder} has {len(shown)} tables with a finished run, and plot() draws one.")
        pyplot.switch_backend(pyplot.get_backend())  # loads it: in a notebook, figures are then shown
        return next(iter(shown.values())).figure()

    @cached_property
    def _pictures(self) -> dict[str, Picture]:
        """Returns the picture of each table that has a finished run, by the table's key."""
        from probe.tables.figures import pictures

        return {picture.table: picture for picture in pictures(self.rows) if picture.table}

    def features(self, texts: list[str], row: str | None = None, *settings: str) -> list[WordVectors]:
        """Returns the features of new texts, with the layers, the combination and the scale of a row.

        row: by default the recommended one, which must be shown to lie within the margin. settings: for paths that have
        changed, as "encoder.path=DIR". Without saved weights, the scale is computed again from the features of train.
        Raises UserError.
        """
        if row is None:
            recommended = self.recommendation
            if recommended.use is None or not recommended.within:
                best = f" The best on dev: {recommended.best.name!r}." if recommended.best else ""
                raise UserError(f"no row is shown to be within the margin, so name one: features(texts, ROW).{best}")
            row = recommended.use.name
        return load(self.folder, row, *settings).features(texts)

    if not TYPE_CHECKING:  # for which there would be any attribute

        def __getattr__(self, name: str) -> NoReturn:
            raise AttributeError(
                f"no {name!r}. There are: table, runs, rows, problems, notes, recommendation (.use, .best), plot(), "
                "features()."
            )

    def __str__(self) -> str:
        return render(self.rows, "text")

    def _repr_html_(self) -> str:
        parts = []
        for rows in tables_of(self.rows):
            parts.append(as_table(rows, choose_columns(None, rows)).render("html"))
            if picture := self._pictures.get(rows[0].table):
                drawn = base64.b64encode(picture.render()).decode()
                parts.append(f'<img alt="{picture.alt}" width="740" src="data:image/png;base64,{drawn}">')
        return "\n".join([*parts, *(f"<p>{html.escape(line)}</p>" for line in self.problems + self.notes)])


@dataclass(frozen=True)
class Screen:
    """Holds a screen, the content of screen.json: every choice of layers that was tried, best first."""

    record: ScreenRecord = field(repr=False)

    @cached_property
    def table(self) -> pandas.DataFrame:
        """Returns one row per choice, best first."""
        import pandas

        return pandas.DataFrame(ranked_choices(self.record))

    def __str__(self) -> str:
        return screen_table(self.record).render("text")

    def _repr_html_(self) -> str:
        return screen_table(self.record).render("html")


def results(folder: str | Path, margin: float | None = None) -> Results:
    """Reads a results folder: its table and runs as pandas DataFrames, and which row to use. Trains nothing.

    margin: by how many points of dev score a row may be worse than the best (default: as the first sweep, else 1).
    Scores are fractions. Raises probe.config.UserError, a ValueError, if the folder holds neither records nor a sweep.

    >>> import probe
    >>> found = probe.results("results/demo-minilm")
    >>> found.recommendation.use.name, found.recommendation.use.indices, found.recommendation.use.margin
    ('concat_last_four', [3, 4, 5, 6], 1.0)
    >>> print(found.recommendation)  # doctest: +ELLIPSIS
    Use concat_last_four (layers 3..6): ...
    >>> found.table[["row", "layers", "n", "label"]].tail(2).values.tolist()
    [['concat_last_four', [3, 4, 5, 6], 3, 'best'], ['sum_all', [1, 2, 3, 4, 5, 6], 3, 'worse']]
    >>> len(found.runs), found.runs.row[found.runs.dev.idxmax()]
    (18, 'concat_last_four')
    """
    folder = results_folder(Path(folder))
    return Results(folder, build_rows(folder, margin), [str(error) for error in bad_files(folder)])


def choose(
    encoder: str | Path | None,
    texts: Any,
    labels: Any = None,
    *settings: str,
    groups: Any = None,
    dev: Any = None,
    test: Any = None,
    results_dir: str | Path = "results/chosen",
) -> Results:
    """Screens an encoder's layers on your texts, trains the rows that are worth it, and returns the results folder.

    encoder: a preset, a folder or OWNER/NAME on the Hub. None: `texts` is an array or tensor of vectors, (units,
    layers, H) or (units, H).
    texts, labels: texts with a label each, or lists of words with a list of tags each. Or `texts` is a pandas.DataFrame
    or datasets.Dataset, with the columns "text" and "label", or "tokens" and "ner_tags", or those that
    "data.words_field=NAME" and "data.tags_field=NAME" say.
    groups: the document, patient or prompt family of each text.
    dev, test: (texts, labels), (texts, labels, groups), or a table. None: a fifth of the texts, by group.
    settings: as on the command line, last; "layers=A,B" trains these rows without a screen.

    Trained are the last layer and the rows that the screen says to train first, with three seeds, by a linear probe, or
    for words as +sweep=quickstart does. What was read is kept in `data` of the folder, for all commands. The same call
    again reads what is done. Raises probe.config.UserError, a ValueError.
    """
    folder = Path(results_dir).expanduser()
    if isinstance(labels, str):  # the first setting, behind a table
        labels, settings = None, (labels, *settings)
    inputs = write_inputs(encoder, {"train": (texts, labels, groups), "dev": dev, "test": test}, settings, folder)
    if any(str(word).startswith("layers=") for word in settings):
        return sweep("seed=1,2,3", *inputs)
    screened = screen(*(word for word in inputs if not str(word).startswith("seed="))).record
    rows = list(dict.fromkeys([*(choice.name for choice in to_train_first(screened)), "last"]))
    return sweep(f"layers={','.join(rows)}", "seed=1,2,3", *inputs)


def run(*settings: str) -> RunRecord:
    """Trains one run as `probe train` does, prints nothing, and returns its record. A run that is done is read.

    settings: as on the command line. Raises probe.config.UserError, a ValueError, for mistakes in them.

    >>> import probe
    >>> record = probe.run("data=demo", "encoder=minilm_l6", "layers=last", "probe=linear", "results_dir=results/mine")
    >>> record.row, record.layers.indices, record.seed
    ('last', [6], 1)
    >>> 0.4 < record.scores.dev.headline < 0.5
    True
    """
    if configs_of(list(settings))[1]:
        raise UserError("probe.run trains one run. For a sweep: probe.sweep(...)")
    printed, _ = _run_command("train", settings)
    return load_record(Path(printed.rpartition("\nrecord: ")[2].strip()))


def sweep(*settings: str) -> Results:
    """Trains the runs of a sweep as `probe -m` does, prints nothing, and returns the results folder as `results` does.

    settings: as on the command line, including a sweep file (`+sweep=quickstart`). Runs that are done are not repeated;
    failures are in `problems`. Raises probe.config.UserError, a ValueError, for mistakes in the settings.

    >>> import probe
    >>> found = probe.sweep("layers=last,embeddings", "data=demo", "encoder=minilm_l6", "probe=linear",
    ...                     "results_dir=results/mine")
    >>> found.table.row.tolist(), len(found.runs), found.problems
    (['embeddings', 'last'], 2, [])
    """
    configs, _ = configs_of(["-m", *settings])
    folders = {cfg.results_dir for cfg in configs}
    if len(folders) > 1:
        raise UserError(f"give one results_dir, not {', '.join(sorted(folders))}.")
    printed, errors = _run_command("train", ["-m", *settings], may_fail=True)
    found = results(folders.pop())
    failed = [line for line in errors.splitlines() if line.startswith("failed: ")]
    notes = [line for line in printed.splitlines() if line.startswith("data ")]
    return replace(found, problems=[*failed, *found.problems], notes=notes)


def screen(*settings: str) -> Screen:
    """Ranks choices of layers by quick probes, as `probe screen` does, prints nothing, and returns them.

    settings: as on the command line. A screen that is done is read. Raises probe.config.UserError, a ValueError.

    >>> import probe
    >>> found = probe.screen("data=demo", "encoder=minilm_l6", "screen.sentences=200", "screen.max_layers=1",
    ...                           "results_dir=results/mine")
    >>> found.table.place.tolist() == list(range(1, len(found.table) + 1))
    True
    >>> found.table.columns.tolist()[:6]
    ['place', 'encoder', 'name', 'alike', 'indices', 'combine']
    """
    folder = Path(configs_of(list(settings), swept="encoder")[0][0].results_dir)
    _run_command("screen", settings)
    record = load_screen(folder)
    assert record is not None, "the command wrote it"
    return Screen(record)


def features(*settings: str, each: bool = False) -> Splits:
    """Returns words, tags and vectors of a corpus under a frozen encoder: train, dev and test.

    settings: as on the command line: "data=conll2003", "encoder.path=DIR", "layers=concat_last_four". Missing
    features are extracted first. each: does not combine the layers: (words, layers, H).

    In each split, `words`, `tags` and the rows of `vectors` are aligned, one row per word; `sentences` are slices
    of them. Slicing `vectors` reads those rows from the store into a torch tensor; converting it to a NumPy array
    reads all of it. Corpus and encoder are read again at each call. Raises probe.config.UserError, a ValueError.

    >>> from probe import features
    >>> train, dev, test = features("data=demo", "encoder=minilm_l6", "layers=concat_last_four")
    >>> dev.vectors.shape
    (6622, 1536)
    >>> first = dev.sentences[0]
    >>> list(zip(dev.words[first], dev.tags[first]))[:3]
    [('HEADLESS', 'O'), ('RAKVERE', 'B-ORG'), ('TARVAS', 'I-ORG')]
    >>> dev.vectors[first].dtype
    torch.float16
    """
    share_cores()
    from probe.export.export import splits_with_features
    from probe.runs.plan import forget_inputs

    forget_inputs()
    return splits_with_features(config_of(list(settings)), each)


class WordVectors(NamedTuple):
    """Holds a text's words and vectors, on the CPU in float32, with the shapes that `word_vectors` names."""

    words: list[str]
    vectors: torch.Tensor


@overload
def word_vectors(texts: str, *settings: str) -> WordVectors: ...


@overload
def word_vectors(texts: list[str], *settings: str) -> list[WordVectors]: ...


def word_vectors(texts: str | list[str], *settings: str) -> WordVectors | list[WordVectors]:
    """Returns the vector of each word of a text under a frozen encoder; for several texts, a list.

    settings: as on the command line, for example "encoder=minilm_l6", "encoder.path=DIR" or "features.subword=mean".
    Without layers, vectors of every layer, (words, L + 1, H), layer 0 = embedding output. With "layers=NAME" or
    "layers.indices=[3,4]", these layers combined as `features` does: (words, width), for a mix (words, layers, H). With
    layers.normalize they are brought to the scale of `features`, by statistics of the train split of "data=NAME".

    Each text is split into words as `probe inspect` does (punctuation marks are words) and encoded by itself. The
    encoder is loaded at each call, so pass many texts at once. Raises probe.config.UserError, a ValueError.
    """
    share_cores()
    from probe.inspect.encoded_text import TextEncoder
    from probe.probes.combine import combine_stored

    texts_read = [texts] if isinstance(texts, str) else texts
    if not isinstance(texts_read, list | tuple) or not all(isinstance(text, str) for text in texts_read):
        raise UserError(f"word_vectors takes a text or a list of texts, not {reprlib.repr(texts)}.")
    cfg = config_of(list(settings))
    groups = {re.split(r"[=.]", setting.lstrip("+"))[0] for setting in settings}
    if (scale := cfg.layers.normalize) and ("data" not in groups or not task_of(cfg.data).is_per_word):
        raise UserError(f"layers.normalize={scale} needs a training text with a label per word: type data=NAME.")
    normalization = features(*settings).train.vectors.normalization if scale else None
    reader = TextEncoder(replace(cfg, layers=replace(cfg.layers, normalize=None)))
    chosen, read = reader.selection, []
    for number, text in enumerate(texts_read, 1):
        reading = reader.read(text, number)
        if "layers" in groups:
            vectors = combine_stored([reading.vectors[k] for k in chosen.indices], chosen, normalization)
        else:
            vectors = reading.vectors.transpose(0, 1).contiguous()
        read.append(WordVectors(reading.words, vectors))
    return read[0] if isinstance(texts, str) else read


@dataclass(frozen=True)
class Model:
    """Holds a model that `probe export --model` wrote, or the probe of a results folder with its encoder.

    Each text is read by itself and split into words as `probe inspect` does; where words have a label, each line of a
    text is a sentence. The encoder is loaded at the first call.
    """

    file: Path
    record: RunRecord
    settings: tuple[str, ...] = ()

    def tag(self, texts: list[str]) -> list[list[tuple[str, str]]]:
        """Returns each text's words with their tags; where a text has one label, that label with the text."""
        ((tagged, _),) = self._trained.tag([split := self._split(texts)])
        units = split.by_unit(self.record.task.units).words
        pairs = [list(zip(words, tags, strict=True)) for words, tags in zip(units, tagged, strict=True)]
        return [list(chain.from_iterable(pairs[part])) for part in _texts_of(split)]

    def spans(self, texts: list[str]) -> list[list[dict[str, Any]]]:
        """Returns the spans of each text, as a token-classification pipeline of transformers groups them.

        Each has entity_group (its type), score (the mean probability of its words' tags), word (its characters in the
        text), start and end. Raises UserError if the probe's tags are not those of spans.
        """
        refuse_other_tasks(self.record, "spans(...)")
        ((tagged, scores),) = self._trained.tag([split := self._split(texts)])
        return [
            [{"word": text[span.start : span.end], **span.as_dict("entity_group")} for span in found]
            for text, found, _ in texts_with_spans(split, tagged, scores)
        ]

    def features(self, texts: list[str]) -> list[WordVectors]:
        """Returns each text's words with their features as the probe has them: combined and normalized."""
        (vectors,) = self._trained.features([split := self._split(texts)])
        split = split.by_unit(self.record.task.units)
        words = [list(chain.from_iterable(split.words[part])) for part in _texts_of(split)]
        return [WordVectors(*pair) for pair in zip(words, vectors.split(list(map(len, words))), strict=True)]

    @cached_property
    def _trained(self) -> TrainedRow:
        from probe.tag.tagging import TrainedRow

        cfg = config_of_record(self.file, self.record, config_of, list(self.settings))
        return TrainedRow(self.file, self.record, cfg)

    def _split(self, texts: list[str]) -> Split:
        if isinstance(texts, str) or not all(isinstance(text, str) and text.split() for text in texts):
            raise UserError("give a list of texts, each with a word.")
        if self.record.task.is_per_word:
            return read_running([part for text in texts for part in (text, "")], "texts")  # "" ends a document
        return replace(read_running([" ".join(text.split()) for text in texts], "texts"), raw=list(texts))


def _texts_of(split: Split) -> list[slice]:
    """Returns which sentences of a split each text has."""
    ends = [at for at in range(1, len(split.lines)) if split.lines[at] != split.lines[at - 1]]
    return [slice(*bounds) for bounds in pairwise([0, *ends, len(split.lines)])]


def load(folder: str | Path, row: str | None = None, *settings: str) -> Model:
    """Returns a model that `probe export --model` wrote, or the row of a results folder, for new text.

    row: needed if the folder has several; the seed is the best one on dev. settings: for paths that have changed, as
    "encoder.path=DIR". Raises probe.config.UserError, a ValueError.
    """
    share_cores()
    return Model(*select_saved_probe(Path(folder), row, None), settings)


def _run_command(command: str, settings: Sequence[str], may_fail: bool = False) -> tuple[str, str]:
    """Runs a command and returns its stdout and stderr. Raises UserError with its message for exit code 2.

    may_fail: accepts exit code 1, which says that some run failed.
    """
    done = run_with_bar([sys.executable, "-m", "probe", command, *settings], command)
    message = done.stderr.rpartition("probe: ")[2].strip()
    if done.returncode == 2:
        raise UserError(message)
    if done.returncode not in ((0, 1) if may_fail else (0,)):
        raise RuntimeError(f"probe {command} ended with exit code {done.returncode}: {message[-2000:]}")
    return done.stdout, done.stderr


def _run_fields(row: Row, file: Path, record: RunRecord) -> dict[str, object]:
    return {
        "row": row.name,
        "encoder": record.encoder.name,
        "condition": row.condition,
        "seed": record.seed,
        "dev": record.scores.dev.headline,
        "test": record.scores.test.headline,
        "outcome": record.outcome,
        "best_epoch": record.best_epoch,
        "epochs": len(record.curve),
        "parameters": record.parameters,
        "read_s": record.seconds.read,
        "train_s": record.seconds.train,
        "key": record.key,
        "record": str(file),
    }
