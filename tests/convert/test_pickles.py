"""What in a PyTorch file is refused before PyTorch reads it. Every file here is a real one, made wrong on purpose."""

from __future__ import annotations

import os
import pickle
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from support.facts import names

from probe.config import UserError
from probe.convert.convert import load_weights
from probe.convert.pickles import check_pickle

FORMATS = {"zip": True, "old": False}


class Calls:
    """Calls a function when it is unpickled."""

    def __init__(self, function: Callable[..., object], *arguments: object) -> None:
        self.function, self.arguments = function, arguments

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return self.function, self.arguments


@pytest.fixture(params=FORMATS)
def save(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[Any], Path]:
    """Saves a value in one of the two formats, and returns the file."""

    def to_file(value: Any) -> Path:
        file = tmp_path / "pytorch_model.bin"
        torch.save(value, file, _use_new_zipfile_serialization=FORMATS[request.param])
        return file

    return to_file


def weights() -> OrderedDict[str, torch.Tensor]:
    return OrderedDict(a=torch.randn(3, 4), b=torch.arange(5), c=torch.randn(2).half(), d=torch.randn(2).bfloat16())


def test_honest_weights_pass(save: Callable[[Any], Path]):
    check_pickle(save(weights()))
    check_pickle(save(dict(weights())))
    check_pickle(save({"a": torch.nn.Parameter(torch.randn(2))}))
    check_pickle(save(torch.nn.LSTM(2, 3).state_dict()))


@pytest.mark.parametrize(
    ("function", "arguments"), [(os.system, ("touch {}",)), (eval, ("__import__('pathlib').Path({!r}).touch()",))]
)
def test_a_pickle_that_calls_a_function_is_refused_and_not_run(
    save: Callable[[Any], Path], function: Callable[..., object], arguments: tuple[str], tmp_path: Path
):
    sign = tmp_path / "ran"
    file = save({**weights(), "e": Calls(function, arguments[0].format(str(sign)))})
    with pytest.raises(UserError) as error:
        check_pickle(file)
    names(error.value, str(file), function.__name__)
    assert not sign.exists()
    torch.load(file, weights_only=False)
    assert sign.exists(), "it would have run"


@pytest.mark.parametrize("value", [complex(1, 2), {1, 2}, slice(3), torch.device("cpu"), torch.float16])
def test_any_other_name_is_refused(save: Callable[[Any], Path], value: object):
    with pytest.raises(UserError, match=r"pytorch_model\.bin"):
        check_pickle(save({**weights(), "e": value}))


def test_a_pickle_of_a_later_protocol_is_refused_with_what_it_uses(tmp_path: Path):
    torch.save(weights(), tmp_path / "x.bin", pickle_protocol=4)
    with pytest.raises(UserError, match="STACK_GLOBAL"):
        check_pickle(tmp_path / "x.bin")


def read(file: Path) -> None:
    check_pickle(file)
    load_weights(file)  # of the older format the values come last


@pytest.mark.parametrize("share", [0.02, 0.3, 0.999])
def test_a_file_that_is_cut_off_is_refused(save: Callable[[Any], Path], share: float):
    file = save({f"layer.{i}": torch.randn(20, 20) for i in range(20)})
    file.write_bytes(file.read_bytes()[: int(share * file.stat().st_size)])
    with pytest.raises(UserError, match=r"pytorch_model\.bin"):
        read(file)


@pytest.mark.parametrize(
    "content", [b"", b"\n", b"not weights", pickle.dumps({"a": 1}), b"PK\x03\x04", b"\x80\x02" * 99]
)
def test_what_is_no_file_of_torch_is_refused(content: bytes, tmp_path: Path):
    (tmp_path / "x.bin").write_bytes(content)
    with pytest.raises(UserError, match=r"x\.bin"):
        check_pickle(tmp_path / "x.bin")


def test_an_archive_that_two_programs_could_read_differently_is_refused(tmp_path: Path):
    torch.save(weights(), tmp_path / "good.bin")
    with zipfile.ZipFile(tmp_path / "good.bin") as archive:
        parts = {entry.filename: archive.read(entry) for entry in archive.infolist()}
    check_pickle(tmp_path / "good.bin")

    def written(name: str, more: dict[str, bytes], compression: int = zipfile.ZIP_STORED) -> Path:
        with zipfile.ZipFile(tmp_path / name, "w", compression) as archive:
            for part, content in [*parts.items(), *more.items()]:
                archive.writestr(part, content)
        return tmp_path / name

    check_pickle(written("same.bin", {}))
    wrong = [
        written("two_pickles.bin", {"good/constants.pkl": b"."}),
        written("two_folders.bin", {"other/data.pkl": b"."}),
        written("compressed.bin", {}, zipfile.ZIP_DEFLATED),
    ]
    with pytest.warns(UserWarning, match="Duplicate"):
        wrong.append(written("twice.bin", {"good/data.pkl": b"."}))
    for file in wrong:
        with pytest.raises(UserError, match=file.name):
            check_pickle(file)
