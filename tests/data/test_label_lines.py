"""Labels of sentences in comments before their words, in column files and CoNLL-U."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.facts import names

from probe.config import UserError
from probe.data.corpus import Corpus, load_corpus
from probe.settings import config_of

XSID = """\
# id: 1
# text: add this song
# intent: AddToPlaylist
1\tadd\tAddToPlaylist\tO
2\tthis\tAddToPlaylist\tO
3\t#\tAddToPlaylist\tB-x

# text: # wake = me
# intent: alarm set
1\twake\talarm\tO
2\t#hash\talarm\tO
"""
CONLLU = """\
# newdoc id = a
# sentiment = good
# text = vámonos
1-2\tvámonos\t_\t_\t_\t_\t_\t_\t_\t_
1\tvamos\t_\tVERB\t_\t_\t0\troot\t_\t_
2\tnos\t_\tPRON\t_\t_\t1\tobj\t_\t_

# sentiment = bad
1\tno\t_\tADV\t_\t_\t0\troot\t_\t_

"""


def corpus(folder: Path, text: str, ending: str, key: str, *typed: str) -> Corpus:
    for name, more in (("train", ""), ("dev", "x"), ("test", "y")):
        words = text.replace("wake\t", f"wake{more}\t").replace("\tno\t", f"\tno{more}\t")
        (folder / f"{name}.{ending}").write_text(words)
    files = [f"data.{name}={name}.{ending}" for name in ("train", "dev", "test")]
    return load_corpus(
        config_of(["data=sentences", f"data.path={folder}", *files, f"data.label_key={key}", *typed]).data
    )


def test_columns_have_a_label_in_a_comment(tmp_path: Path):
    train = corpus(tmp_path, XSID, "conll", "intent", "data.word_column=1").splits["train"]
    assert list(train.words) == [["add", "this", "#"], ["wake", "#hash"]], "only lines of metadata are comments"
    assert list(train.tags) == [["AddToPlaylist"], ["alarm set"]]
    assert train.place_in(1, 1).startswith(f"{tmp_path / 'train.conll'}:11 ")
    assert train.skipped_lines == [1, 2, 8]


def test_a_file_of_words_needs_no_second_column(tmp_path: Path):
    train = corpus(tmp_path, "# label = a\none\ntwo\n\n# label = b\nwake\t\n", "txt", "label").splits["train"]
    assert list(train.words) == [["one", "two"], ["wake"]]
    assert list(train.tags) == [["a"], ["b"]]


def test_words_that_begin_with_a_hash_are_words(tmp_path: Path):
    text = "# label = a\n#re:me\n#url=x\n\n# label = b\n#\nwake\t\n"
    train = corpus(tmp_path, text, "txt", "label").splits["train"]
    assert list(train.words) == [["#re:me", "#url=x"], ["#", "wake"]]


def test_other_comments_may_stand_before_a_label(tmp_path: Path):
    text = "# one of two\n# label = a\none\n\n# two\n# label = b\nwake\t\n"
    train = corpus(tmp_path, text, "txt", "label", "data.comment='# '").splits["train"]
    assert list(train.words) == [["one"], ["wake"]]
    assert list(train.tags) == [["a"], ["b"]]


def test_conllu_has_a_label_in_its_metadata(tmp_path: Path):
    train = corpus(tmp_path, CONLLU, "conllu", "sentiment").splits["train"]
    assert list(train.words) == [["vamos", "nos"], ["no"]]
    assert list(train.tags) == [["good"], ["bad"]]
    assert train.not_words == 1
    assert train.documents == [1, 1]


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        (XSID.replace("# intent: alarm set\n", ""), ["train.conll:9", "label_key=intent"]),
        (XSID.replace("# text: # wake = me", "# intent: other"), ["train.conll:10", "8, 9"]),
        (XSID + "\n# intent: more\n", ["train.conll:13"]),
        (XSID.replace("alarm set", ""), ["train.conll:9", "empty"]),
        (XSID.replace("intent", "purpose"), ["train.conll:4", "label_key=intent"]),
    ],
)
def test_a_label_that_is_missing_or_stands_twice_is_named(text: str, facts: list[str], tmp_path: Path):
    with pytest.raises(UserError) as error:
        corpus(tmp_path, text, "conll", "intent", "data.word_column=1")
    names(str(error.value), *facts)


def test_without_a_key_conllu_is_refused_with_the_setting(tmp_path: Path):
    with pytest.raises(UserError, match=r"data\.label_key"):
        corpus(tmp_path, CONLLU, "conllu", "null")
