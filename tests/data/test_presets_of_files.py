"""Presets of corpora that people have as files, with small files in the true layout of each."""

from __future__ import annotations

from pathlib import Path

import pytest

from probe.config import UserError
from probe.data.corpus import Corpus, load_corpus
from probe.data.tasks import TAGS
from probe.settings import config_of


def made(preset: str, folder: Path, *typed: str) -> Corpus:
    return load_corpus(config_of([f"data={preset}", f"data.path={folder}", *typed]).data)


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


def test_another_treebanks_files_are_named(treebank: Path):
    with pytest.raises(UserError, match=r"de_gsd-ud-train\.conllu.*en_ewt-ud-train\.conllu"):
        made("ud_pos", treebank, "data.subset=de_gsd")
