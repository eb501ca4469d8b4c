"""What a text of OntoNotes 5's size costs: time, peak memory and disk, beside a tenth of it, through a tiny encoder.

    python tests/benchmarks/scale.py                        0.22 and 2.2 million words: read, extract, read, export
    python tests/benchmarks/scale.py --words 220000 22000   smaller

The text is made up: words drawn by Zipf's law from 50,000, sentences of 5 to 35, in column files. Each size runs in a
process of its own, and peak memory is that process's, all in: text, encoder, extraction. The encoder is random: two
blocks of 16. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from itertools import accumulate
from pathlib import Path
from typing import Any

ONTONOTES = 2_200_000  # words, about: Pradhan et al. 2013, with its news, talk and web text
SHARES = {"train": 0.8, "dev": 0.1, "test": 0.1}
DISTINCT = 50_000
LETTERS = "abcdefghijklmnopqrstuvwxyz"
TINY = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}


def write_text(folder: Path, num_words: int) -> None:
    """Column files of so many words in all, and a document mark every 20 sentences."""
    choose, vocabulary = random.Random(1), words_by_rank()
    by_rank = list(accumulate(1 / rank for rank in range(1, DISTINCT + 1)))
    folder.mkdir(parents=True)
    for split, share in SHARES.items():
        with (folder / f"{split}.txt").open("w") as stream:
            left, number = int(num_words * share), 0
            while left > 0:
                length = min(left, choose.randint(5, 35))
                stream.write("-DOCSTART- O\n\n" if number % 20 == 0 else "")
                for word in choose.choices(vocabulary, cum_weights=by_rank, k=length):
                    stream.write(f"{word} {'B-PER' if hash_of(word) % 12 == 0 else 'O'}\n")
                stream.write("\n")
                left, number = left - length, number + 1


def hash_of(word: str) -> int:
    return sum(map(ord, word))


def write_encoder(folder: Path, size: dict[str, Any]) -> None:
    """A random BERT. The more frequent half of the words are one piece each, the others a few, as real ones are."""
    import torch
    import transformers

    folder.mkdir(parents=True)
    letters = [*LETTERS, *(a + b for a in LETTERS for b in LETTERS)]
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *(f"##{piece}" for piece in letters)]
    pieces += [word for word in words_by_rank()[: DISTINCT // 2] if len(word) > 2]
    (folder / "vocab.txt").write_text("\n".join(pieces) + "\n")
    transformers.BertTokenizer(str(folder / "vocab.txt"), model_max_length=512).save_pretrained(folder)
    torch.manual_seed(0)
    config = transformers.BertConfig(vocab_size=len(pieces), max_position_embeddings=512, **size)
    transformers.BertModel(config).save_pretrained(folder)


def words_by_rank() -> list[str]:
    choose = random.Random(0)
    return ["".join(choose.choices(LETTERS, k=choose.randint(2, 10))) for _ in range(DISTINCT)]


def overrides(home: Path, num_words: int) -> list[str]:
    files = [f"data.{name}={name}.txt" for name in SHARES]
    text = ["data=columns", f"data.path={home / str(num_words)}", *files]
    return [*text, "layers=last", f"encoder.path={home / 'encoder'}", f"features.cache_dir={home / 'cache'}"]


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure(settings: list[str]) -> dict[str, Any]:
    """Reads the text, extracts, reads the features, exports; each step's seconds and the peak memory up to its end."""
    from probe.export.export import export
    from probe.runs.plan import plan
    from probe.settings import config_of
    from probe.vectors.sources import complete_store

    cfg = config_of(settings)
    found: dict[str, Any] = {"imports": {"peak_mb": round(peak_mb())}}
    clock = time.perf_counter()

    def step(name: str) -> None:
        nonlocal clock
        found[name] = {"seconds": round(time.perf_counter() - clock, 1), "peak_mb": round(peak_mb())}
        clock = time.perf_counter()

    planned = plan(cfg)
    step("read the text")
    store = complete_store(planned.store, "cpu")
    step("extract")
    for split in store.shards:
        for _, layers in store.read(split, [1, 2]):
            assert len(layers) == 2
    step("read two layers")
    with tempfile.TemporaryDirectory() as folder:
        export(cfg, Path(folder) / "features", False, lambda _: None)
    step("export")
    found["disk_mb"] = round(sum(file.stat().st_size for file in store.directory.iterdir()) / 1e6, 1)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--words", type=int, nargs="+", default=[ONTONOTES // 10, ONTONOTES])
    parser.add_argument("--measure", nargs="+", metavar="SETTING", help=argparse.SUPPRESS)  # in a process of its own
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(options.measure)))
        return
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        write_encoder(home / "encoder", TINY)
        found = {}
        for num_words in options.words:
            write_text(home / str(num_words), num_words)
            command = [sys.executable, __file__, "--measure", *overrides(home, num_words)]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
            found[num_words] = json.loads(done.stdout.splitlines()[-1])
            print(f"{num_words} words: {found[num_words]}", flush=True)
        peaks = [max(step["peak_mb"] for step in steps.values() if isinstance(step, dict)) for steps in found.values()]
        print(json.dumps({"peak_mb": peaks, "peak_over_smallest": round(max(peaks) / min(peaks), 3), "steps": found}))


if __name__ == "__main__":
    main()
