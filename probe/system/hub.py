"""Is the Hugging Face Hub in reach? Asked once, quickly, before any library starts its own long retries."""

from __future__ import annotations

import functools
import os
import threading
import urllib.request

TIMEOUT_S = 2.0


@functools.lru_cache(maxsize=1)
def reachable() -> bool:
    """Whether the Hub answers at all, within TIMEOUT_S. Honours HF_ENDPOINT, HF_HUB_OFFLINE and proxies."""
    if os.environ.get("HF_HUB_OFFLINE", "").upper() in {"1", "ON", "YES", "TRUE"}:
        return False
    answered = threading.Event()
    # A thread, since looking up a name and trying several addresses know no limit in all.
    asking = threading.Thread(target=_ask, args=(answered,), daemon=True)
    asking.start()
    asking.join(TIMEOUT_S)
    return answered.is_set()


def _ask(answered: threading.Event) -> None:
    endpoint = os.environ.get("HF_ENDPOINT", "https://huggingface.co")
    try:
        urllib.request.urlopen(urllib.request.Request(endpoint, method="HEAD"), timeout=TIMEOUT_S).close()
        answered.set()
    except urllib.error.HTTPError:
        answered.set()  # an error, but an answer
    except (OSError, ValueError):
        pass


def go_offline_if_unreachable() -> bool:
    """Tells the Hub's libraries to use their caches only where the Hub is out of reach. Returns `reachable()`.

    Must run before `datasets` or `huggingface_hub` is imported: they read the variable once.
    """
    if not reachable():
        os.environ["HF_HUB_OFFLINE"] = "1"
    return reachable()
