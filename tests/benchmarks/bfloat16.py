"""A run in bfloat16 by PyTorch's own CPU kernels, to hold this package's emulation against.

    python tests/benchmarks/bfloat16.py data=demo encoder=minilm_l6 layers=embeddings seed=1 probe.precision=bfloat16 \
      features.precision=bfloat16 features.cache_dir=NEW results_dir=DIR

What is typed is what `probe` takes. oneDNN, which knows bfloat16 only on CPUs that have it, is turned off; what PyTorch
falls back to has products and LSTMs in true bfloat16 on every CPU, several times slower. NEW must not be a folder of
features that were emulated. The same settings with `probe`, on a CPU without bfloat16, give the emulated run.
"""

from __future__ import annotations

import torch

from probe.cli import main
from probe.system import bfloat16

if __name__ == "__main__":
    torch.backends.mkldnn.set_flags(False)
    for trial in ("_product_works", "_lstm_works"):
        setattr(bfloat16, trial, lambda: True)
    main()
