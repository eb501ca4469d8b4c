"""What several test files share. Says how the libraries are to behave before any of them is imported."""

from __future__ import annotations

import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # HF_HUB_OFFLINE=0 pytest -m hub  runs the tests that need the Hub
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ.setdefault("OMP_NUM_THREADS", "1")  # tests run side by side, and what they compute is tiny
