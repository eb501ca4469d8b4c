"""The `probe` command: which command runs, and its exit code. The commands themselves are in other modules."""

from __future__ import annotations

import contextlib
import difflib
import os
import signal
import sys
from typing import NoReturn

from probe.cli.checking import doctor, verify
from probe.cli.racing import race
from probe.cli.screening import screen
from probe.cli.settings import complete
from probe.cli.stores import cache, export
from probe.cli.tables import bench, errors, report, sweep_status, table
from probe.cli.texts import inspect, score, tag
from probe.cli.training import extract, train
from probe.config import UserError
from probe.system.machine import share_cores

HELP = """\
probe: which layers of a frozen BERT should I use as features?

  probe [train] [-m] [setting=value ...]   one run, or with -m (or +sweep=NAME) a sweep, then its table
  probe race [setting=value ...]           train rows seed by seed, and drop those that are worse
  probe extract [setting=value ...]        fill the feature store and stop
  probe screen [setting=value ...]         every layer and combination ranked without training, in a minute
  probe table [DIR ...] [--format FORMAT]  records to a table: text, md, csv, tex, json; --compare A B
  probe report [DIR]                       tables, figures and one page that holds everything
  probe errors [DIR] --row A --against B   what one row gets right that the other does not, with examples
  probe bench [DIR] [setting=value ...]    words a second of the encoder, cut where each row needs it
  probe verify [DIR]                       do these records hold? --rerun trains again, --against compares
  probe sweep-status [DIR]                 where a sweep stands, from another terminal
  probe inspect "TEXT" ... [setting=value] one text, layer by layer; `probe inspect --help` tells more
  probe doctor [setting=value ...]         is everything here for this run: data, encoder, store, device?
  probe tag DIR --row ROW FILE|TEXT|-      tags text with a probe whose weights were kept (save_probe=true)
  probe score FILE [FILE]                  anybody's predictions in CoNLL columns, scored every way; two: a paired test
  probe cache list|explain|verify|prune    what the feature store holds; `probe cache --help` tells more
  probe export [setting=value ...] --to DIR    words, tags and vectors to take away: safetensors, Parquet, NumPy

Examples
  probe +sweep=quickstart                                    the paper's six rows, bundled corpus and encoder
  probe data=demo encoder=minilm_l6 layers=second_to_last    one run
  probe -m data=demo encoder=minilm_l6 layers=last,sum_all seed=1,2,3
  probe layers=single 'layers.indices=[7]'                   any layer
  probe 'layers.indices=[0,12]' layers.combine=mean          any layers, by sum, mean, concat or mix
  probe encoder.path=DIR data=columns data.path=DIR          your own encoder and corpus
  probe inspect "I love Paris" encoder=minilm_l6             pieces, hidden states, vectors of one text

Settings: `probe --cfg job` prints them all with their values; `probe --hydra-help` is Hydra's own help.
Completion in bash: eval "$(probe --shell-completion install=bash)"
"""


def main() -> None:
    """The `probe` command. Exit codes: 0 done, 1 a run failed, 2 something for the user to mend."""
    share_cores()
    signal.signal(signal.SIGTERM, _stop)
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # as `nohup` has it
        signal.signal(signal.SIGHUP, _stop)
    try:
        sys.exit(dispatch(sys.argv[1:]))
    except UserError as error:
        print(f"probe: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        with contextlib.suppress(OSError):  # a terminal that was closed
            print("\nprobe: stopped. What is finished is kept; the same command continues.", file=sys.stderr)
        sys.exit(130)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except OSError as error:  # a full disk, a folder taken away
        print(f"probe: {error.filename or 'writing'}: {error.strerror or error}", file=sys.stderr)
        sys.exit(2)


def _stop(*_: object) -> NoReturn:
    """`kill` or a closed terminal stops as Ctrl-C does, with the jobs that were started."""
    raise KeyboardInterrupt


def dispatch(arguments: list[str]) -> int:
    commands = {
        "train": train,
        "extract": extract,
        "race": race,
        "screen": screen,
        "table": table,
        "report": report,
        "errors": errors,
        "bench": bench,
        "verify": verify,
        "sweep-status": sweep_status,
        "inspect": inspect,
        "cache": cache,
        "export": export,
        "doctor": doctor,
        "score": score,
        "tag": tag,
    }
    first = arguments[0] if arguments else ""
    if first in ("-h", "--help", "help"):
        print(HELP, end="")
        return 0
    if first in ("--shell-completion", "-sc"):
        complete(arguments, list(commands))
        return 0
    if first in commands:
        if first in ("train", "extract") and any(flag in arguments for flag in ("-h", "--help")):
            print(HELP, end="")
            return 0
        return commands[first](arguments[1:])
    if first and "=" not in first and not first.startswith(("-", "+", "~")):
        close = difflib.get_close_matches(first, commands, n=1)
        hint = f" Did you mean `probe {close[0]}`?" if close else ""
        raise UserError(f"there is no command {first!r}.{hint} Commands: {', '.join(commands)}.")
    return train(arguments)
