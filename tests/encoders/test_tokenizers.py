"""Tokenizers: the space before a word, and those that exist in Python alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import transformers
from support.facts import names
from support.families import FAMILIES, TEXT, WORDS, in_python
from support.inputs import COMMON, encoder_config
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers, processors

from probe.config import UserError
from probe.data.split import Split
from probe.encoders import tokenizer as tokenizer_module
from probe.encoders.encoder import open_encoder
from probe.encoders.pieces import check_words, cut, cut_split, notes_on_pieces, special_pieces
from probe.encoders.tokenizer import load_tokenizer, tokenizer_identity

KINDS = ["BertweetTokenizer", "PhobertTokenizer", "FlaubertTokenizer", "BertJapaneseTokenizer"]


@pytest.fixture(params=KINDS)
def tokenizer(request: pytest.FixtureRequest) -> Any:
    if request.param == "FlaubertTokenizer":
        pytest.importorskip("sacremoses")
    return in_python(request.param)


def test_words_are_cut_one_by_one_as_in_running_text(tokenizer: Any):
    assert not tokenizer.is_fast
    for words in [WORDS, *(text.split() for text in TEXT[:3])]:
        running = tokenizer(" ".join(words), add_special_tokens=False)["input_ids"]
        assert [piece for pieces in cut(tokenizer, words) for piece in pieces] == running
        assert len(running) > len(words)
    check_words(tokenizer, "x")


def test_words_without_a_piece_have_none(tokenizer: Any):
    assert cut(tokenizer, ["", " ", "may"])[:2] == [[], []]


def test_what_is_added_to_a_text_is_what_the_tokenizer_adds(tokenizer: Any):
    special = special_pieces(tokenizer)
    (may,) = cut(tokenizer, ["may"])
    assert special.prefix + may + special.suffix == tokenizer("may")["input_ids"]


def test_what_is_added_is_found_without_knowing_the_letter_a():
    """Thai, and no unknown piece."""
    backend = Tokenizer(models.WordLevel({"<s>": 0, "</s>": 1, "ไป": 2}))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    ends = [("<s>", 0), ("</s>", 1)]
    backend.post_processor = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=ends)
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=backend, cls_token="<s>", sep_token="</s>")
    special = special_pieces(tokenizer)
    assert (special.prefix, special.suffix) == ([0], [1])


def test_a_tokenizer_in_python_that_loses_the_spaces_is_refused():
    with pytest.raises(UserError, match="byt5"):
        check_words(transformers.ByT5Tokenizer(), "byt5")


def test_a_word_beyond_the_embeddings_is_named_with_its_place(tiny_bert: Path, tmp_path: Path):
    encoder = open_encoder(encoder_config(tiny_bert), tmp_path)
    split = Split([["the", "of"], ["the", "paris"]], [["O"] * 2] * 2, None, [3, 7], "text")
    (paris,) = cut(encoder.tokenizer, ["paris"])[0]
    cut_split(encoder.tokenizer, split, rows=paris + 1)
    with pytest.raises(UserError) as error:
        cut_split(encoder.tokenizer, split, rows=paris)
    names(error.value, split.place(3), "paris", paris)


def test_what_a_tokenizer_loses_is_named(tiny_bert: Path, tmp_path: Path):
    """Common words pass; a script without pieces is unknown."""
    encoder = open_encoder(encoder_config(tiny_bert), tmp_path)

    def notes(words: list[str]) -> list[str]:
        split = Split([words], [["O"] * len(words)], None, [1], "text")
        return notes_on_pieces(cut_split(encoder.tokenizer, split), encoder.tokenizer, "x")

    known = [*COMMON]
    assert notes(known) == []
    (unknown,) = notes([*known, "ประเทศไทย", "ทะเล"])
    share = 100 * 2 / (len(known) + 2)
    names(unknown, f"{share:.0f} %")


def test_japanese_words_are_cut_by_mecab_and_then_into_pieces():
    for package in ("fugashi", "unidic_lite"):
        pytest.importorskip(package)
    tokenizer = in_python(
        "BertJapaneseTokenizer", word_tokenizer_type="mecab", mecab_kwargs={"mecab_dic": "unidic_lite"}
    )
    words = ["東京", "大学", "に", "行く"]
    pieces = cut(tokenizer, words)
    assert [tokenizer.convert_ids_to_tokens(piece) for piece in pieces] == [[word] for word in words]
    assert [piece for word in pieces for piece in word] == tokenizer("東京大学に行く", add_special_tokens=False)[
        "input_ids"
    ]
    assert tokenizer.convert_ids_to_tokens(cut(tokenizer, ["東京大学"])[0]) == ["東京", "大学"]


@pytest.mark.parametrize("kind", ["BertweetTokenizer", "PhobertTokenizer"])
def test_an_encoder_whose_tokenizer_is_in_python_is_told_apart_by_its_files(kind: str, tmp_path: Path):
    folder = tmp_path / "encoder"
    in_python(kind).save_pretrained(folder)
    _, model = FAMILIES["bertweet"]()
    model.save_pretrained(folder)
    first = open_encoder(encoder_config(folder), tmp_path)
    assert type(first.tokenizer).__name__ == kind
    assert not first.lower_cases
    again = open_encoder(encoder_config(folder.rename(tmp_path / "moved")), tmp_path)
    assert again.fingerprint == first.fingerprint
    codes = tmp_path / "moved/bpe.codes"
    codes.write_text(codes.read_text().replace("P a", "P r"))
    other = open_encoder(encoder_config(tmp_path / "moved"), tmp_path)
    assert other.fingerprint["tokenizer"] != first.fingerprint["tokenizer"]
    assert {name: value for name, value in other.fingerprint.items() if name != "tokenizer"} == {
        name: value for name, value in first.fingerprint.items() if name != "tokenizer"
    }


def test_a_setting_of_a_tokenizer_in_python_is_part_of_what_it_is(tmp_path: Path):
    pytest.importorskip("emoji")
    identities = []
    for normalization in (False, True):
        folder = tmp_path / str(normalization)
        in_python("BertweetTokenizer", normalization=normalization).save_pretrained(folder)
        transformers.RobertaConfig().save_pretrained(folder)
        identities.append(tokenizer_identity(load_tokenizer(folder, "x"), folder))
    different = {name for name in identities[0] if identities[0][name] != identities[1][name]}
    assert different == {"settings"}
    assert str(tmp_path) not in json.dumps(identities)


def test_a_tokenizer_without_the_package_for_emoji_is_refused_where_it_needs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(__import__("sys").modules, "emoji", None)
    for normalization in (False, True):
        folder = tmp_path / str(normalization)
        in_python("BertweetTokenizer", normalization=normalization).save_pretrained(folder)
        transformers.RobertaConfig().save_pretrained(folder)
    load_tokenizer(tmp_path / "False", "x")
    with pytest.raises(UserError, match="pip install emoji"):
        load_tokenizer(tmp_path / "True", "x")


def test_a_tokenizer_without_a_vocabulary_is_refused(tmp_path: Path):
    """The library makes one of its special pieces alone, for which every word is unknown."""
    transformers.RobertaConfig().save_pretrained(tmp_path)
    (tmp_path / "bpe.codes").write_text("a b 1\n")
    with pytest.raises(UserError, match=r"tokenizer\.json"):
        load_tokenizer(tmp_path, "x")


@pytest.mark.parametrize("family", ["llama-3", "qwen3", "gemma-3-text", "llama"])
def test_a_space_before_a_word_is_added_where_the_library_adds_none(family: str, tmp_path: Path):
    tokenizer, _ = FAMILIES[family]()
    tokenizer.save_pretrained(tmp_path)
    transformers.LlamaConfig().save_pretrained(tmp_path)
    loaded = load_tokenizer(tmp_path, family)
    text = " Paris may be nice"
    plain = tokenizer(text, add_special_tokens=False)["input_ids"]
    assert [piece for pieces in cut(loaded, text.split()) for piece in pieces] == plain


OWN_RULES = ["distilbert", "mpnet", "roberta", "xlm-roberta", "llama", "gemma-3-text"]
FIRST = ("[CLS]", "<s>", "<bos>")


def saved(family: str, folder: Path, change: Any = None, **settings: Any) -> Path:
    """A folder with a family's tokenizer and config.json, after a change of tokenizer.json and its settings."""
    tokenizer, model = FAMILIES[family]()
    tokenizer.save_pretrained(folder)
    model.config.save_pretrained(folder)
    backend = Tokenizer.from_file(str(folder / "tokenizer.json"))
    if change is not None:
        change(backend)
    backend.save(str(folder / "tokenizer.json"))
    stated = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps({**stated, **settings}))
    return folder


@pytest.mark.parametrize("family", OWN_RULES)
def test_words_and_what_is_around_a_text_follow_tokenizer_json(family: str, tmp_path: Path):
    def change(backend: Any) -> None:
        first = next(piece for piece in FIRST if backend.token_to_id(piece) is not None)
        backend.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace("ö", "may")])
        backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        backend.post_processor = processors.TemplateProcessing(
            f"{first} $A", None, [(first, backend.token_to_id(first))]
        )

    loaded = load_tokenizer(saved(family, tmp_path, change), family)
    own = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    words = ["ö", "o'neil", "ｍａｙ", "(may)", "1996", "MAY"]
    expected = [own.encode([word], is_pretokenized=True, add_special_tokens=False).ids for word in words]
    assert cut(loaded, words) == expected
    special = special_pieces(loaded)
    assert [*special.prefix, *expected[2], *special.suffix] == own.encode(["ｍａｙ"], is_pretokenized=True).ids
    assert loaded.pad_token_id == FAMILIES[family]()[0].pad_token_id


def test_a_tokenizer_that_cuts_as_its_file_says_stays_what_it_was(tmp_path: Path):
    """Other rules that cut alike: the identity is that of the library's."""
    plain = load_tokenizer(saved("distilbert", tmp_path / "plain"), "x")

    def change(backend: Any) -> None:
        backend.normalizer = normalizers.Sequence([backend.normalizer])

    changed = load_tokenizer(saved("distilbert", tmp_path / "changed", change), "x")
    assert tokenizer_identity(changed, tmp_path / "changed") == tokenizer_identity(plain, tmp_path / "plain")


def test_a_word_of_a_corpus_that_tokenizer_json_cuts_otherwise_is_refused(tmp_path: Path):
    def change(backend: Any) -> None:
        backend.normalizer = normalizers.Sequence([normalizers.Replace("zebra", "paris"), backend.normalizer])

    loaded = load_tokenizer(saved("distilbert", tmp_path, change), "x")
    cut_split(loaded, Split([["paris", "met"]], [["O"] * 2], None, [1], "text"))
    with pytest.raises(UserError) as error:
        cut_split(loaded, Split([["paris", "zebra"]], [["O"] * 2], None, [1], "text"))
    names(error.value, "zebra", "paris", "[UNK]", "PreTrainedTokenizerFast")
    stated = json.loads((tmp_path / "tokenizer_config.json").read_text())
    stated["tokenizer_class"] = "PreTrainedTokenizerFast"
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(stated))
    followed = load_tokenizer(tmp_path, "x")
    assert cut(followed, ["zebra"]) == cut(followed, ["paris"])


@pytest.mark.parametrize("stated", [True, False])
def test_case_is_as_tokenizer_config_states_and_else_as_tokenizer_json(stated: bool, tmp_path: Path):
    def change(backend: Any) -> None:
        backend.normalizer = normalizers.BertNormalizer(lowercase=not stated)

    folder = saved("distilbert", tmp_path, change, do_lower_case=stated)
    unknown, lowered = [[1], FAMILIES["distilbert"]()[0].convert_tokens_to_ids(["paris"])]
    assert cut(load_tokenizer(folder, "x"), ["PARIS"]) == [lowered if stated else unknown]
    assert cut(load_tokenizer(folder, "x", lower_case=not stated), ["PARIS"]) == [unknown if stated else lowered]
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    del settings["do_lower_case"]
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    assert cut(load_tokenizer(folder, "x"), ["PARIS"]) == [unknown if stated else lowered]


@pytest.mark.parametrize("family", [*OWN_RULES, "t5", "gpt2", "llama-3"])
def test_a_word_spelt_like_a_special_piece_is_cut_as_text(family: str, tmp_path: Path):
    loaded = load_tokenizer(saved(family, tmp_path, lambda backend: backend.add_special_tokens(["<ent>"])), family)
    special = {*loaded.all_special_ids, loaded.convert_tokens_to_ids("<ent>")} - {loaded.unk_token_id, 2}
    words = ["</s>", "<mask>", "[SEP]", "<ent>", "<pad>", " </s> ", "x</s>x", "may"]
    for word, pieces in zip(words, cut(loaded, words), strict=True):
        assert special.isdisjoint(pieces), word
    assert cut(loaded, ["may"]) == cut(loaded, words)[-1:]


def test_an_end_of_text_in_a_corpus_is_letters_for_xlm_r_and_an_added_word_stays_one(tmp_path: Path):
    def change(backend: Any) -> None:
        backend.add_tokens([AddedToken("nicely-met", normalized=False)])

    loaded = load_tokenizer(saved("xlm-roberta", tmp_path, change), "x")
    cuts = cut(loaded, ["</s>", "<unk>", "nicely-met"])
    pieces = [loaded.convert_ids_to_tokens(ids) for ids in cuts]
    assert "s" in pieces[0]
    assert "n" in "".join(pieces[1][1:]).replace("<unk>", "")
    assert pieces[2][-1] == "nicely-met"


def test_special_pieces_in_a_text_are_cut_by_a_tokenizer_in_python(tokenizer: Any):
    special = set(tokenizer.all_special_ids) - {tokenizer.unk_token_id}
    for word in tokenizer.all_special_tokens:
        assert special.isdisjoint(cut(tokenizer, [word])[0])


def test_a_model_of_sentencepiece_without_its_packages_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """As microsoft/deberta-v3-base lies on the Hub. The library names tiktoken, which cannot read the file."""
    transformers.DebertaV2Config().save_pretrained(tmp_path)
    (tmp_path / "spm.model").write_bytes(b"no model")
    monkeypatch.setattr(tokenizer_module, "version_of", lambda package: "1" if package == "protobuf" else None)
    with pytest.raises(UserError) as error:
        load_tokenizer(tmp_path, "x")
    names(error.value, "spm.model", "pip install sentencepiece")
    assert "tiktoken" not in str(error.value)


def test_words_are_cut_as_sentencepiece_cuts_them_where_there_is_no_tokenizer_json(tmp_path: Path):
    sentencepiece = pytest.importorskip("sentencepiece")
    pytest.importorskip("google.protobuf")
    (tmp_path / "text").write_text("\n".join([*TEXT, *TEXT]))
    sentencepiece.SentencePieceTrainer.Train(
        f"--input={tmp_path}/text --model_prefix={tmp_path}/spm --vocab_size=60 --hard_vocab_limit=false "
        "--pad_id=0 --bos_id=1 --eos_id=2 --unk_id=3"
    )
    transformers.DebertaV2Config().save_pretrained(tmp_path)
    own = sentencepiece.SentencePieceProcessor(model_file=f"{tmp_path}/spm.model")
    words = ["paris", "ｍａｙ", "Leeds", "ﬁ", "nice,"]
    assert cut(load_tokenizer(tmp_path, "x"), words) == [own.encode(word) for word in words]
