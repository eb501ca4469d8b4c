"""A throw-away kind of source, which reads no text, has all that encoders have above their store."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from support.commands import TINY
from support.facts import names
from support.inputs import encoder_config, overrides

from probe.config import FeaturesConfig, UserError
from probe.runs.records import load_records
from probe.settings import configs_of
from probe.vectors.sources import SOURCES, SourceKind, open_source, text_encoder
from probe.vectors.store import FeatureStore, Shard


@dataclass
class Lengths:
    """A word's length and first letter, and in higher layers their powers."""

    kind: ClassVar[str] = "lengths"
    settings: ClassVar[tuple[str, ...]] = ("dtype",)
    fingerprint: dict[str, str] = field(default_factory=lambda: {"made_by": "test"})
    name: str = "lengths"
    source: str = "this test"
    commit: str | None = None
    pretrained: dict[str, str] | None = None
    num_layers: int = 2
    hidden_size: int = 2
    lower_cases: bool = False

    def reading(self, is_per_word: bool, cfg: FeaturesConfig) -> dict[str, Any]:
        return {"dtype": cfg.dtype}


def fill(store: FeatureStore, missing: list[Shard], *_: object) -> dict[str, int]:
    for shard in missing:
        words = [word for words in store.corpus.splits[shard.split].words for word in words][shard.first : shard.last]
        layer = torch.tensor([[len(word) / 8, ord(word[0]) / 128] for word in words])
        store.write(shard, torch.stack([layer**power for power in (1, 2, 3)]).to(getattr(torch, store.dtype)))
    return dict.fromkeys(store.shards, 0)


@pytest.fixture
def lengths(tiny_data: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is typed for this source and a corpus, once the kind is listed before the one that takes everything."""
    by_path = SourceKind(lambda cfg: cfg.path == "lengths", lambda *_: Lengths(), lambda cfg: 2, __name__)
    others = dict(SOURCES)
    for name in others:
        monkeypatch.delitem(SOURCES, name)
    for name, kind in {"lengths": by_path, **others}.items():
        monkeypatch.setitem(SOURCES, name, kind)
    return ["encoder.path=lengths", *overrides(Path("lengths"), tiny_data)[1:], *TINY]


def test_it_is_extracted_trained_shown_checked_and_screened(lengths: list[str], typed: Callable, tmp_path: Path):
    out = f"results_dir={tmp_path / 'out'}"
    names(typed("doctor", *lengths, out, "layers=last").stdout, "lengths, from this test", "0 to 2")
    each = [["layers=single", f"layers.indices=[{layer}]"] for layer in range(3)]
    for command in (["extract", "layers=last"], *each, ["screen", "screen.max_layers=2"]):
        done = typed(*command, *lengths, out)
        assert done.returncode == 0, done.stderr
    settings = [record.config.features for record in load_records(tmp_path / "out").values()]
    assert [set(one) for one in settings] == [{"dtype"}] * 3
    for text in (typed("table", str(tmp_path / "out")).stdout, (tmp_path / "out/screen.md").read_text()):
        names(text, "lengths")
        assert not re.search("context|piece", text)
    assert typed("verify", str(tmp_path / "out")).returncode == 0
    assert len(configs_of(["-m", "layers.indices=each", *lengths])[0]) == 3, "without opening it"


def test_what_reads_new_text_refuses_it(lengths: list[str], typed: Callable, tmp_path: Path):
    assert typed(*lengths, "layers=last", "save_probe=true", f"results_dir={tmp_path / 'out'}").returncode == 0
    for command in (
        ["inspect", "the bank", *lengths, "layers=last"],
        ["tag", str(tmp_path / "out"), "the bank"],
        [*lengths[: -len(TINY)], "condition=fine_tuned", f"results_dir={tmp_path / 'tuned'}"],
    ):
        done = typed(*command)
        assert done.returncode in (1, 2), done.stdout
        names(done.stderr, "lengths, from this test")


def test_a_source_that_reads_text_is_the_encoder_itself(tiny_bert: Path, tmp_path: Path):
    encoder = open_source(encoder_config(tiny_bert), tmp_path)
    assert text_encoder(encoder) is encoder
    with pytest.raises(UserError, match="lengths"):
        text_encoder(Lengths())
