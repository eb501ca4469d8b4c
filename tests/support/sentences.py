"""Makes the bundled corpora of sentences from that of names; `python tests/support/sentences.py` writes them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import probe

DEMO = Path(probe.__file__).parent / "data/demo"
SPLITS = {"tr": "train", "va": "dev", "te": "test"}  # as SentEval names them


def sentences(split: str) -> Iterator[tuple[list[str], list[str]]]:
    for block in (DEMO / f"{split}.conll").read_text().split("\n\n"):
        lines = [line.split() for line in block.splitlines() if line and not line.startswith("-DOCSTART-")]
        if lines:
            yield [line[0] for line in lines], [line[1] for line in lines]


def person() -> Iterator[str]:
    """Labels each sentence: does it name a person?"""
    for short, split in SPLITS.items():
        for words, tags in sentences(split):
            yield f"{short}\t{'person' if 'B-PER' in tags else 'none'}\t{' '.join(words)}"


def bigram_shift() -> Iterator[str]:
    """Swaps two neighbouring words of every second sentence of five words or more, drawn with a fixed seed."""
    draw = random.Random(0)
    for short, split in SPLITS.items():
        for words, _ in sentences(split):
            places = [i for i in range(len(words) - 1) if words[i].lower() != words[i + 1].lower()]
            if len(words) < 5 or not places:
                continue
            swapped = draw.random() < 0.5
            if swapped:
                at = draw.choice(places)
                words[at], words[at + 1] = words[at + 1], words[at]
            yield f"{short}\t{'swapped' if swapped else 'original'}\t{' '.join(words)}"


FILES = {"person.txt": person, "bigram_shift.txt": bigram_shift}

if __name__ == "__main__":
    for name, lines in FILES.items():
        (DEMO / name).write_text("".join(f"{line}\n" for line in lines()))
