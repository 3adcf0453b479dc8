"""Command line: random programs compiled against eager.

``python -m tests.fuzz --count 20000 --keep-going`` runs the programs of seeds 1 to 20000; with
``--shrink`` each failing program is made small and printed.
"""

import argparse
import sys
from pathlib import Path

from .generator import program
from .known import switch_off
from .shrink import shrink
from .workers import AUDITED, Failure, keeps_failing, outcome_of, quiet, run_seeds


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="the first seed")
    parser.add_argument("--count", type=int, default=1000, help="how many programs")
    parser.add_argument("--keep-going", action="store_true", help="do not stop at a failure")
    parser.add_argument("--shrink", action="store_true", help="make failing programs small")
    parser.add_argument("--print", action="store_true", help="print the programs, run nothing")
    parser.add_argument("--known", action="store_true", help="run into known differences too")
    parser.add_argument("--file", type=Path, help="run this program instead of generated ones")
    return parser.parse_args()


def report(failure: Failure, small: bool) -> None:
    print(failure, flush=True)
    if small:
        print(shrunk(program(failure.seed), failure.seed % AUDITED == 0), flush=True)


def shrunk(text: str, audit: bool) -> str:
    """The small program, and how it differs."""
    text = shrink(text, keeps_failing(text, audit))
    difference = outcome_of(text, audit).difference
    return f"{'-' * 80}\n{text}\n{'-' * 80}\n{difference}\n{'=' * 80}"


def main() -> int:
    options = arguments()
    if options.known:
        switch_off()
    seeds = list(range(options.seed, options.seed + options.count))
    if options.print:
        for seed in seeds:
            print(f"# seed {seed}\n{program(seed)}")
        return 0
    if options.file is not None:
        quiet()
        text = options.file.read_text()
        outcome = outcome_of(text)
        print(outcome.difference or "equal", outcome.stats, outcome.refusals)
        if outcome.difference is not None and options.shrink:
            print(shrunk(text, audit=False))
        return outcome.difference is not None
    summary = run_seeds(seeds, options.keep_going, lambda f: report(f, options.shrink))
    print(summary)
    return bool(summary.failures)


if __name__ == "__main__":
    sys.exit(main())
