"""Reads which names the pickle in a PyTorch file imports, without unpickling it.

A pickle is a program, and the names that it imports are all that it can call. Weights need few of them. A file that
imports anything else is refused before PyTorch reads it.

A file is in one of two formats: a zip archive with one pickle, or, from before 2020, five pickles and then the values.
"""

from __future__ import annotations

import pickletools
import zipfile
from pathlib import Path
from typing import IO

from probe.config import UserError

DTYPES = "Float Double Half BFloat16 Long Int Short Char Byte Bool".split()
# The names in the pickles of harmless checkpoints, as listed by the Hub's own scanner.
ALLOWED = {
    "collections.OrderedDict",
    "torch._utils._rebuild_tensor_v2",
    "torch._utils._rebuild_parameter",  # if parameters were saved, not their values
    *(f"torch.{dtype}Storage" for dtype in DTYPES),
}
# Other opcodes that import names or make objects. PyTorch writes none of them.
OTHER_IMPORTS = {"STACK_GLOBAL", "INST", "OBJ", "NEWOBJ", "NEWOBJ_EX", "EXT1", "EXT2", "EXT4"}
ZIP_START = b"PK\x03\x04"
MAGIC = 0x1950A86A20F9469CFC6C  # the first pickle of the format from before 2020
PICKLES = 5  # of that format: magic number, version, machine, weights, keys of the values
PICKLE_BYTES = 1 << 27  # a pickle of weights takes 100 to 200 bytes per tensor
CUT_OFF = "it is cut off or damaged. Fetch it again"


def check_pickle(file: Path) -> None:
    """Raises UserError unless a file is in one of PyTorch's two formats and imports only names in ALLOWED."""
    with file.open("rb") as stream:
        is_zip = stream.read(len(ZIP_START)) == ZIP_START
        stream.seek(0)
        if is_zip:
            _check_zip(file)
        else:
            _check_old_format(stream, file)


def _check_zip(file: Path) -> None:
    """Checks the only pickle of an archive.

    Refuses an archive that two programs could read differently, so that PyTorch reads what was checked.
    """
    try:
        with zipfile.ZipFile(file) as archive:
            entries = archive.infolist()
            names = [entry.filename for entry in entries]
            pickles = [entry for entry in entries if entry.filename.endswith(".pkl")]
            folders = {name.partition("/")[0] for name in names}
            if len(set(names)) < len(names) or len(folders) > 1 or archive.comment:
                raise _not_written_by_torch(file, "it has two entries of one name, two folders or a comment")
            if [entry.filename for entry in pickles] != [f"{folders.pop()}/data.pkl"]:
                raise _not_written_by_torch(file, f"it has {', '.join(e.filename for e in pickles) or 'no data.pkl'}")
            if any(entry.compress_type != zipfile.ZIP_STORED for entry in entries):
                raise _not_written_by_torch(file, "its entries are compressed")
            if pickles[0].file_size > PICKLE_BYTES:
                raise _not_written_by_torch(file, f"its data.pkl has {pickles[0].file_size:,} bytes")
            with archive.open(pickles[0]) as stream:
                _check_names(stream, file)
    except (zipfile.BadZipFile, EOFError, NotImplementedError):
        raise UserError(f"{file}: {CUT_OFF}.") from None


def _check_old_format(stream: IO[bytes], file: Path) -> None:
    """Checks the five pickles at the start of a file that is not an archive."""
    try:
        first = [argument for _, argument, _ in pickletools.genops(stream)]
    except ValueError:
        first = []
    if MAGIC not in first:
        raise _not_written_by_torch(file, "it begins with neither an archive nor PyTorch's number")
    stream.seek(0)
    for _ in range(PICKLES):
        _check_names(stream, file)


def _check_names(stream: IO[bytes], file: Path) -> None:
    """Checks the next pickle of a stream. The stream is then at the pickle's end."""
    found = set()
    try:
        for opcode, argument, _ in pickletools.genops(stream):
            if opcode.name == "GLOBAL":
                found.add(str(argument).replace(" ", "."))
            elif opcode.name in OTHER_IMPORTS:
                found.add(opcode.name)
    except ValueError:  # also raised for text that is not UTF-8
        if found <= ALLOWED:
            raise UserError(f"{file}: {CUT_OFF}.") from None
    if others := sorted(found - ALLOWED):
        raise UserError(
            f"{file}: its pickle imports {', '.join(others)}, which weights do not need and which may run code. It was "
            "not read. Take the weights from another source."
        )


def _not_written_by_torch(file: Path, found: str) -> UserError:
    return UserError(f"{file} is not a file of weights as torch.save writes it: {found}. It was not read.")
