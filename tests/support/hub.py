"""A stand-in for the Hugging Face Hub on 127.0.0.1: as much of its protocol as its libraries use, and its silence.

Written from what `huggingface_hub` asks and reads: names and commits under /api, files under /resolve, the large ones
(weights, Parquet) by way of a redirect with X-Linked-Etag, errors by X-Error-Code.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import datasets
import huggingface_hub.constants
import pytest
import torch
from datasets import ClassLabel, List, Value
from safetensors.torch import load_file, save_file

from probe.system import hub as the_hub
from support.inputs import VOCABULARY

PATIENCE_S = 60
PEOPLE = ("O", "B-PER", "I-PER")
LARGE = (".safetensors", ".parquet", ".bin", ".onnx")
API = re.compile(r"/api/(model|dataset)s/(.+?)(?:/(revision|tree)(?:/(.*))?)?$")
FILE = re.compile(r"/(datasets/)?(.+?)/resolve/([^/]+)/(.+)$")


def sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@dataclass
class Hub:
    """Repositories by kind and name. asked: "METHOD path" of every request, in order."""

    endpoint: str = ""
    storage: str = ""  # where large files are sent from: another host, as there
    branches: dict[tuple[str, str], dict[str, str]] = field(default_factory=dict)
    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    gated: set[str] = field(default_factory=set)
    silent: str | None = None  # paths that match this are never answered
    broken: str | None = None  # paths that match this are answered with 500
    given_up: bool = False  # whether somebody waited in vain for as long as PATIENCE_S
    released: threading.Event = field(default_factory=threading.Event)

    def put(self, kind: str, name: str, files: Mapping[str, bytes | str] | Path, revision: str = "main") -> str:
        """Pushes files as a new commit of a branch, in the place of what was there; returns the commit."""
        if isinstance(files, Path):
            files = {str(f.relative_to(files)): f.read_bytes() for f in sorted(files.rglob("*")) if f.is_file()}
        content = {path: text.encode() if isinstance(text, str) else text for path, text in files.items()}
        listing = json.dumps({path: sha(part) for path, part in content.items()})
        commit = hashlib.sha1(f"{kind} {name} {listing}".encode()).hexdigest()
        self.commits[commit] = content
        self.branches.setdefault((kind, name), {})[revision] = commit
        return commit

    def files_asked(self) -> list[str]:
        """The files whose content was sent, by name."""
        blobs = {sha(part): path for files in self.commits.values() for path, part in files.items()}
        names = [FILE.match(unquote(path[4:])) for path in self.asked if path.startswith("GET ")]
        sent = [match[4] for match in names if match and not match[4].endswith(LARGE)]
        return sent + [blobs[path[9:]] for path in self.asked if path.startswith("GET /cdn/")]

    def env(self, home: Path, **more: str) -> dict[str, str]:
        """The environment of a process that takes this for the Hub, with caches of its own."""
        return {
            "HF_ENDPOINT": self.endpoint,
            "HF_HUB_OFFLINE": "0",
            "HF_HOME": str(home),
            "NO_PROXY": "127.0.0.1,localhost",
            **more,
        }

    def use(self, monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
        """Makes this process take it for the Hub, as a process that has asked nothing yet, with caches of its own."""
        constants = huggingface_hub.constants
        for name, value in self.env(home).items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(home / "hub"))
        monkeypatch.setattr(constants, "ENDPOINT", self.endpoint)
        template = self.endpoint + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", home / "datasets")
        forget()


def parquet(
    words: str,
    tags: list[int] | None = None,
    names: Sequence[str] | None = PEOPLE,
    tags_field: str = "ner_tags",
    **more: list,
) -> bytes:
    """One row, as `datasets` writes it. names: of the tags, in the schema. more: further columns."""
    tokens = words.split()
    row = {"tokens": [tokens], tags_field: [tags or [1] + [0] * (len(tokens) - 1)], **more}
    features = datasets.Dataset.from_dict(row).features
    features[tags_field] = List(ClassLabel(names=list(names)) if names else Value("int32"))
    buffer = io.BytesIO()
    datasets.Dataset.from_dict(row, features).to_parquet(buffer)
    return buffer.getvalue()


def old_layout(bert: Path) -> dict[str, bytes | str]:
    """google-bert/bert-base-cased as it lies there: gamma and beta, the prefix `bert.`, a head, no tokenizer.json, and
    the same weights in the forms of other libraries."""
    weights = {
        "bert." + name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): part
        for name, part in load_file(bert / "model.safetensors").items()
    }
    weights["cls.predictions.bias"] = torch.zeros(len(VOCABULARY))
    weights["cls.predictions.transform.LayerNorm.gamma"] = torch.ones(16)
    weights["cls.seq_relationship.weight"] = torch.zeros(2, 16)
    file = bert.parent / "old.safetensors"
    save_file(weights, file, {"format": "pt"})
    config = json.loads((bert / "config.json").read_text()) | {"architectures": ["BertForMaskedLM"]}
    others = ("pytorch_model.bin", "tf_model.h5", "flax_model.msgpack", "onnx/model.onnx", "coreml/x.mlmodel")
    return {
        "config.json": json.dumps(config),
        "tokenizer_config.json": '{"do_lower_case": true, "model_max_length": 24}',
        "vocab.txt": (bert / "vocab.txt").read_bytes(),
        "model.safetensors": file.read_bytes(),
        "README.md": "# BERT",
        **dict.fromkeys(others, b"not to be fetched"),
    }


def forget() -> None:
    """As in a new process: nothing of the Hub has been heard."""
    the_hub.reachable.cache_clear()
    for known in (the_hub.commits, the_hub._files, the_hub.from_cache):
        known.clear()


def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a new process with HF_HUB_OFFLINE=1."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    forget()


class Server:
    """Serves a Hub until it is closed."""

    def __init__(self) -> None:
        self.hub = Hub()
        handler = type("Bound", (Handler,), {"hub": self.hub})
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.server.daemon_threads = True
        self.hub.endpoint = f"http://127.0.0.1:{self.server.server_port}"
        self.hub.storage = f"http://localhost:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def close(self) -> None:
        """Answers what is still asked for, lest threads that were given up go on asking, and ends."""
        self.hub.silent = None
        self.hub.released.set()
        for thread in threading.enumerate():
            if thread.name == the_hub.THREAD:
                thread.join(PATIENCE_S)
        self.server.shutdown()
        self.server.server_close()


class Handler(BaseHTTPRequestHandler):
    hub: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:
        """Says nothing: `asked` has it."""

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        hub, path = self.hub, unquote(urlsplit(self.path).path)
        hub.asked.append(f"{self.command} {path}")
        if hub.silent and re.search(hub.silent, path):
            hub.given_up |= not hub.released.wait(PATIENCE_S)
            self.close_connection = True
        elif hub.broken and re.search(hub.broken, path):
            self._answer(500, b"{}")
        elif path == "/":
            self._answer(200, b"")
        elif path.startswith("/cdn/"):
            self._answer(200, next(c for files in hub.commits.values() for c in files.values() if sha(c) == path[5:]))
        elif match := API.match(path):
            self._api(match[1], match[2], match[4])
        elif match := FILE.match(unquote(urlsplit(self.path.replace("%2F", "\0")).path)):
            self._file("dataset" if match[1] else "model", match[2], match[3].replace("\0", "/"), match[4])
        else:
            self._answer(404, b"{}")

    def _api(self, kind: str, name: str, revision: str | None) -> None:
        branches = self.hub.branches.get((kind, name))
        if branches is None:
            return self._error(401, "RepoNotFound")
        commit = self._commit(branches, revision or "main")
        if commit is None:
            return self._error(404, "RevisionNotFound")
        siblings = [{"rfilename": path} for path in self.hub.commits[commit]]
        return self._json({"id": name, "sha": commit, "siblings": siblings, "private": False, "tags": []})

    def _file(self, kind: str, name: str, revision: str, path: str) -> None:
        branches = self.hub.branches.get((kind, name))
        if branches is None:
            return self._error(401, "RepoNotFound")
        if name in self.hub.gated:
            return self._error(403, "GatedRepo")
        commit = self._commit(branches, revision)
        if commit is None:
            return self._error(404, "RevisionNotFound")
        content = self.hub.commits[commit].get(path)
        if content is None:
            return self._error(404, "EntryNotFound", {"X-Repo-Commit": commit})
        headers = {"X-Repo-Commit": commit, "ETag": f'"{hashlib.sha1(content).hexdigest()}"'}
        if not path.endswith(LARGE):
            return self._answer(200, content, headers)
        linked = {"X-Linked-Etag": f'"{sha(content)}"', "X-Linked-Size": str(len(content))}
        return self._answer(302, b"", headers | linked | {"Location": f"{self.hub.storage}/cdn/{sha(content)}"})

    def _commit(self, branches: dict[str, str], revision: str) -> str | None:
        return branches.get(revision) or (revision if revision in self.hub.commits else None)

    def _json(self, value: object) -> None:
        self._answer(200, json.dumps(value).encode(), {"Content-Type": "application/json"})

    def _error(self, status: int, code: str, headers: Mapping[str, str] | None = None) -> None:
        self._answer(status, b'{"error": "..."}', {"X-Error-Code": code, "X-Error-Message": code, **(headers or {})})

    def _answer(self, status: int, body: bytes, headers: Mapping[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
