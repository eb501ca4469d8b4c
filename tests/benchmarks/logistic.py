"""What scikit-learn's logistic regression makes of the same vectors, as a check of linear probes.

    python tests/benchmarks/logistic.py --layers 0,6,12 data=conll2003 data.path=DIR encoder=mpnet_base

Vectors are those of `probe.features`, each feature standardised by train. Of several strengths of regularisation, the
best on dev is shown, with all of them in brackets. Spans are scored by seqeval.
"""

from __future__ import annotations

import argparse
import warnings

import numpy as np
from seqeval.metrics import f1_score
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

import probe
from probe.export.export import SplitFeatures

STRENGTHS = (0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 1.0)  # C: smaller is stronger
ITERATIONS = 300


def score(split: SplitFeatures, predicted: np.ndarray) -> float:
    """Span F1 if tags are spans, else accuracy, in percent."""
    if "O" in split.tags:
        gold, found = ([list(tags[rows]) for rows in split.sentences] for tags in (split.tags, predicted))
        return 100 * float(f1_score(gold, found))
    return 100 * float(np.mean(predicted == np.array(split.tags)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", default="0", help="indices, separated by commas")
    parser.add_argument("--strengths", default=",".join(map(str, STRENGTHS)), help="of regularisation, C")
    parser.add_argument("overrides", nargs="*")
    options = parser.parse_intermixed_args()
    warnings.filterwarnings("ignore", category=ConvergenceWarning)
    for layer in map(int, options.layers.split(",")):
        train, dev, _ = probe.features(*options.overrides, "layers=single", f"layers.indices=[{layer}]")
        scaler = StandardScaler()
        given = scaler.fit_transform(np.asarray(train.vectors, dtype=np.float32))
        asked = scaler.transform(np.asarray(dev.vectors, dtype=np.float32))
        found = {}
        for strength in map(float, options.strengths.split(",")):
            model = LogisticRegression(C=strength, max_iter=ITERATIONS).fit(given, train.tags)
            found[strength] = score(dev, model.predict(asked))
        each = ", ".join(f"C {strength:g}: {value:.2f}" for strength, value in found.items())
        print(f"layer {layer}: {max(found.values()):.2f} ({each})", flush=True)


if __name__ == "__main__":
    main()
