"""Dispatches the `probe` command: the list of commands, the help, and exit codes.

To add a command, write a function of its name in a module of `commands/` and add a line to COMMANDS.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import shlex
import signal
import sys
from typing import NoReturn

from probe import __version__
from probe.config import UserError, unknown_word
from probe.format import printable

# Each one's module in `commands/` and its help. The module has a function of the command's name, which takes the
# arguments after the name and returns the exit code. It is imported only when the command is called.
COMMANDS = {
    "train": ("train", "train and score one run, or a sweep with -m or +sweep=NAME"),
    "extract": ("train", "fill the feature store and stop"),
    "screen": ("screen", "forecast by quick probes which layers are worth training, in a minute"),
    "sweep-status": ("train", "show which runs of a sweep are done, running or failed, and the time left"),
    "table": ("table", "print a results folder as a table, or compare two folders"),
    "report": ("report", "write tables, figures and one page that holds everything"),
    "verify": ("verify", "check results, train them again, or compare them with others"),
    "inspect": ("inspect", "show one text layer by layer: pieces, hidden states, vectors"),
    "doctor": ("doctor", "check that data, encoder, store and device are ready"),
    "tag": ("tag", "tag text with a probe whose weights were saved (save_probe=true)"),
    "cache": ("cache", "list or prune the feature store"),
    "export": ("export", "write features as files, or a row as a model to deploy"),
}

# Words that are typed as commands, and what to type instead of them.
INSTEAD = {"sweep": "-m", "race": "screen", "run": "train"}

# By `kill`; when the terminal closes; by a scheduler before it takes the machine away or the time is over.
STOPS = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)

HELP = """\
usage: probe [COMMAND] [options] [setting=value ...]
       probe --version

Which layers of a frozen BERT should I use as features?

commands (settings without one: train)
{commands}

`probe COMMAND --help` lists the options of a command.

examples:
  probe +sweep=quickstart                                    six rows of the paper, bundled corpus and encoder
  probe data=demo encoder=minilm_l6 layers=second_to_last    one run
  probe -m data=demo encoder=minilm_l6 layers=last,sum_all seed=1,2,3
  probe -m layers=last,layer_7,concat_2_5_7                  presets, and any layers by the names of their rows
  probe 'layers.indices=[0,12]' layers.combine=mean          any layers, by sum, mean, concat or mix
  probe encoder=DIR data=DATA                                your own encoder and corpus: folders, or names on the Hub
  probe inspect "I love Paris" encoder=minilm_l6             pieces, hidden states, vectors of one text

`probe --cfg job` prints every setting with its value.
"""


def main() -> None:
    """Runs the `probe` command. Exit codes: 0 done, 1 a run or a check failed, 2 the user must correct something."""
    from probe.system.machine import share_cores
    from probe.system.processes import become_child, is_child

    # In a locale such as C, names could not be written into records. Without assertions, Hydra reads no range(1,3).
    if sys.getfilesystemencoding() != "utf-8" or sys.flags.optimize:
        os.environ["PYTHONUTF8"] = "1"
        os.environ.pop("PYTHONOPTIMIZE", None)
        os.execv(sys.executable, [sys.executable, "-m", "probe", *sys.argv[1:]])
    share_cores()
    for stream, kept in ((sys.stdout, "\n\t"), (sys.stderr, "\n\t\r")):  # with \r, a progress bar is drawn anew
        if stream.isatty():  # names and texts may be those of others; a file gets them as they are
            stream.write = lambda text, to=stream.write, kept=kept: to(printable(text, kept))  # type: ignore
    for number in STOPS:
        if signal.getsignal(number) != signal.SIG_IGN:  # which `nohup` sets for SIGHUP
            signal.signal(number, _stop)
    try:
        if is_child():
            become_child()
        sys.exit(dispatch(sys.argv[1:]))
    except UserError as error:
        print("probe:", printable(str(error), "\n"), file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        with contextlib.suppress(OSError):  # a terminal that was closed
            if not is_child():
                print("\nprobe: stopped. Finished work is saved. Run the same command to continue.", file=sys.stderr)
        sys.exit(130)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except OSError as error:  # a full disk, a folder that was removed
        print(f"probe: {error.filename or 'writing'}: {error.strerror or error}", file=sys.stderr)
        sys.exit(2)


def _stop(*_: object) -> NoReturn:
    """Stops as at Ctrl-C, with the jobs that were started."""
    for number in STOPS:
        signal.signal(number, signal.SIG_IGN)  # a second one would disturb the first
    raise KeyboardInterrupt


def dispatch(arguments: list[str]) -> int:
    """Runs the command that the first argument names, else `train`; without any, the help. Returns the exit code."""
    first, *others = arguments or ["--help"]
    if first in ("-h", "--help", "help"):
        lines = [f"  {name:<14}{text}" for name, (_, text) in COMMANDS.items()]
        print(HELP.format(commands="\n".join(lines)), end="")
        return 0
    if first in ("-V", "--version"):
        print(f"layer-probe {__version__}")
        return 0
    if first in INSTEAD:
        raise UserError(f"{first!r} is no command. Type: {shlex.join(['probe', INSTEAD[first], *others])}")
    if first == "doctor" and others and others[0] in COMMANDS | INSTEAD:
        typed = shlex.join(["probe", "doctor", *["-m"] * (others[0] == "sweep"), *others[1:]])
        raise UserError(f"{others[0]!r} needs what a run needs, so doctor takes settings alone. Type: {typed}")
    if first not in COMMANDS and "=" not in first and not first.startswith(("-", "+", "~")):
        raise unknown_word(first, COMMANDS)
    name, others = (first, others) if first in COMMANDS else ("train", arguments)
    module = importlib.import_module(f"probe.commands.{COMMANDS[name][0]}")  # of this command alone
    return getattr(module, name.replace("-", "_"))(others)
