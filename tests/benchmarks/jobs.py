"""Which layer is best depends on the job: names, detection and search, of the same text by the same encoder.

    python tests/benchmarks/jobs.py FOLDER [encoder settings ...]
    python tests/benchmarks/jobs.py out encoder=minilm_l6
    python tests/benchmarks/jobs.py out encoder=mpnet_base encoder.path=DIR

Names are those of the demo corpus, tagged by a linear probe on each word (span F1). Detection asks whether a sentence
names a person (a linear probe on the mean of its pieces, AUROC). Search takes each sentence of dev as a query and ranks
the others by the cosine of their means: those of the same document should come first (nDCG@10; nothing is trained).

Prints for each job the best layer, its dev score, and how far the middle and the last layer lie behind the truly best
one, with 95 % intervals for all layers at once. The results of the trained jobs lie in FOLDER.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pandas
import torch
from tabulate import tabulate

import probe
from probe.tables.scores import compare_scores

FIRST = 10  # results of a search that count
TRAINED = {
    "names, F1": ("data=demo",),
    "detection, AUROC": ("data=demo_person", "data.task=detection"),
}
SETTINGS = ("probe=linear", "probe.learning_rate=2e-3", "layers.normalize=train")
Compared = dict[int, tuple[float, float, float, float]]  # of each layer: score, behind, low and high end, in points


def trained(folder: Path, job: str, settings: list[str]) -> Compared:
    """Trains a linear probe on each layer, three seeds, and compares them by the table."""
    rows = ("layers=single", "layers.indices=each", "seed=1,2,3")
    probe.sweep(*TRAINED[job], *SETTINGS, *settings, *rows, f"results_dir={folder / job.split(',')[0]}")
    table = probe.results(folder / job.split(",")[0]).table
    return {
        row.layers[0]: (100 * row.dev_mean, 100 * row.behind, 100 * row.behind_low, 100 * row.behind_high)
        for row in table.itertuples()
    }


def found(vectors: torch.Tensor, documents: np.ndarray) -> np.ndarray:
    """Returns the nDCG@10 of each sentence as a query: (sentences,); NaN for one without another of its document."""
    same = torch.from_numpy(documents[:, None] == documents[None])
    same.fill_diagonal_(False)
    normed = torch.nn.functional.normalize(vectors.float(), dim=1)
    near = (normed @ normed.T).fill_diagonal_(-2).topk(FIRST, 1).indices
    worth = 1 / torch.log2(torch.arange(FIRST) + 2.0)
    gained = (same.gather(1, near).float() * worth).sum(1)
    most = torch.cat([torch.zeros(1), worth.cumsum(0)])[same.sum(1).clamp(max=FIRST)]
    return (gained / most).numpy()


def searched(settings: list[str]) -> Compared:
    """Compares the layers by what a search for sentences of the same document finds, over documents."""
    dev = probe.features(*TRAINED["detection, AUROC"], *settings, "layers=single", "layers.indices='0:'", each=True).dev
    vectors, documents = dev.vectors[:], np.asarray(dev.documents)
    tables = []
    for layer in range(vectors.shape[1]):
        scores = found(vectors[:, layer], documents)
        units = {"row": str(layer), "seed": "1", "unit": np.arange(len(scores)), "document": documents, "score": scores}
        tables.append(pandas.DataFrame(units).dropna())
    rows, _ = compare_scores(pandas.concat(tables), margin=0.01)
    return {
        int(row.row): (
            100 * row.mean,
            100 * (row.behind or 0),
            100 * (row.behind_low or 0),
            100 * (row.behind_high or 0),
        )
        for row in rows
    }


def main() -> None:
    folder, settings = Path(sys.argv[1]), sys.argv[2:]
    jobs = {job: trained(folder, job, settings) for job in TRAINED} | {"search, nDCG@10": searched(settings)}
    lines = []
    for job, layers in jobs.items():
        best, last = max(layers, key=lambda layer: layers[layer][0]), max(layers)
        behind = [
            "{:.1f} ({:.1f} to {:.1f})".format(*(abs(value) for value in (layers[k][1], layers[k][3], layers[k][2])))
            for k in (last // 2, last)
        ]
        lines.append([job, f"layer {best} of {last}", f"{layers[best][0]:.1f}", *behind])
    headers = ["job", "best layer", "dev", f"middle layer ({last // 2}) behind", f"last layer ({last}) behind"]
    print(tabulate(lines, headers, tablefmt="github", disable_numparse=True))


if __name__ == "__main__":
    main()
