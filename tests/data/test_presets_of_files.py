"""Presets of corpora that people have as files, with small files in the true layout of each."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from probe.config import UserError
from probe.data.corpus import Corpus, load_corpus
from probe.data.task import PAIRS, SENTENCE, SPANS, TAGS
from probe.settings import config_of, configs_of

CONF = Path(__file__).parents[2] / "conf/data"


def made(preset: str, folder: Path, *typed: str) -> Corpus:
    return load_corpus(config_of([f"data={preset}", f"data.path={folder}", *typed]).data)


SENTEVAL = """\
tr\tO\tHe left it there .
tr\tI\tHe it left there .
va\tO\t`` Do n't , '' I said .
te\tI\tShe never had it seen .
"""


def test_senteval_has_a_file_per_task_with_all_three_splits(tmp_path: Path):
    (tmp_path / "bigram_shift.txt").write_text(SENTEVAL)
    corpus = made("senteval", tmp_path, "data.subset=bigram_shift")
    assert (corpus.task, corpus.name) == (SENTENCE, "SentEval bigram_shift")
    assert {name: len(split.words) for name, split in corpus.splits.items()} == {"train": 2, "dev": 1, "test": 1}
    assert list(corpus.splits["train"].tags) == [["O"], ["I"]]


def test_a_sweep_takes_all_ten_files_of_senteval():
    comment = (CONF / "senteval.yaml").read_text()
    (tasks,) = re.findall(r"data\.subset=\S*,\S*", comment)
    configs, _ = configs_of(["+sweep=tasks", "data=senteval", "data.path=DIR", tasks, "seed=1"])
    assert len({cfg.data.name for cfg in configs}) == 10
    assert all(cfg.data.train == cfg.data.dev == cfg.data.test for cfg in configs)


UD = """\
# newdoc id = weblog-1
# sent_id = weblog-1-0001
# text = Don't go.
1-2\tDon't\t_\t_\t_\t_\t_\t_\t_\t_
1\tDo\tdo\tAUX\tVB\tMood=Imp\t3\taux\t3:aux\t_
2\tn't\tnot\tPART\tRB\t_\t3\tadvmod\t3:advmod\t_
3\tgo\tgo\tVERB\tVB\tVerbForm=Inf\t0\troot\t0:root\tSpaceAfter=No
3.1\tgone\tgo\tVERB\tVBN\t_\t_\t_\t3:conj\t_
4\t.\t.\tPUNCT\t.\t_\t3\tpunct\t3:punct\t_

"""


@pytest.fixture
def treebank(tmp_path: Path) -> Path:
    for name in ("train", "dev", "test"):
        (tmp_path / f"en_ewt-ud-{name}.conllu").write_text(UD.replace("go", f"go{name}"))
    return tmp_path


def test_universal_dependencies_have_parts_of_speech(treebank: Path):
    corpus = made("ud_pos", treebank, "data.subset=en_ewt")
    assert (corpus.task, corpus.name) == (TAGS, "en_ewt UPOS")
    assert list(corpus.splits["train"].words) == [["Do", "n't", "gotrain", "."]]
    assert list(corpus.splits["train"].tags) == [["AUX", "PART", "VERB", "PUNCT"]]
    xpos = made("ud_pos", treebank, "data.subset=en_ewt", "data.tag_column=4").splits["dev"].tags
    assert list(xpos) == [["VB", "RB", "VB", "."]]


def test_universal_dependencies_have_arcs_on_the_same_text(treebank: Path):
    corpus = made("ud_arcs", treebank, "data.subset=en_ewt")
    assert (corpus.task, corpus.name) == (PAIRS, "en_ewt arcs")
    assert list(corpus.splits["train"].tags) == [["aux", "advmod", "punct"]]
    assert corpus.splits["train"].pairs == [[(0, 1, 2, 3), (1, 2, 2, 3), (3, 4, 2, 3)]]
    other = made("ud_pos", treebank, "data.subset=en_ewt")
    assert corpus.text_fingerprint(True) == other.text_fingerprint(True), "one extraction serves both"


def test_another_treebanks_files_are_named(treebank: Path):
    with pytest.raises(UserError, match=r"de_gsd-ud-train\.conllu.*en_ewt-ud-train\.conllu"):
        made("ud_arcs", treebank, "data.subset=de_gsd")


CONLL2000 = """\
Confidence NN B-NP
in IN B-PP
the DT B-NP
pound NN I-NP
{} VBZ B-VP
. . O

"""


def test_conll2000_has_chunks_and_no_dev_file(tmp_path: Path):
    words = [f"slides{i}" for i in range(30)]
    (tmp_path / "train.txt").write_text("".join(map(CONLL2000.format, words)))
    (tmp_path / "test.txt").write_text(CONLL2000.format("fell"))
    corpus = made("conll2000", tmp_path)
    assert (corpus.task, corpus.name) == (SPANS, "CoNLL-2000")
    assert {name: len(split.words) for name, split in corpus.splits.items()} == {"train": 27, "dev": 3, "test": 1}
    assert corpus.about["scheme"] == "IOB2"
    assert corpus.counts()["test"].spans == 4
    speech = made("conll2000", tmp_path, "data.task=tags", "data.tag_column=1")
    assert list(speech.splits["test"].tags) == [["NN", "IN", "DT", "NN", "VBZ", "."]]
