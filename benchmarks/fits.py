"""Whole private fits, from raw records to the model, beside their peers: `python benchmarks/fits.py PART [--out FILE]`.

Parts: dense (arrays beside scikit-learn's lbfgs), tables (a folder's tables beside diffprivlib), sparse, stream (a file
larger than what may be resident), dask (two workers, one of which dies), gpu, or all. (Steps with batches are measured
by `batches.py`.) Every measurement has a process of its own; ways take turns, and the best of the rounds counts. What
the library refuses is a row that says why. A full run takes an hour or more, --quick a few minutes.
"""

import argparse
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

from fits_parts import card, child, dense, sparse, stream, tables, workers
from fits_parts.sheet import Sheet
from machine import facts
from rich.console import Console

PARTS = ("dense", "tables", "sparse", "stream", "dask", "gpu")


def shape(text: str) -> tuple[int, int]:
    """Return records and features."""
    n, d = text.split("x")
    return int(n), int(d)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="+", choices=[*PARTS, "batches", "all"])
    parser.add_argument("--quick", action="store_true", help="few records, one round: whether it runs, not how fast")
    parser.add_argument("--full", action="store_true", help="stream 12 GB instead of 1")
    parser.add_argument("--rounds", type=int, default=3, help="of each measurement")
    parser.add_argument("--shapes", type=shape, nargs="+", help="of dense records, such as 1000000x20; all by default")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2], help="of fits of dense records")
    parser.add_argument(
        "--limit", type=float, default=child.limit, help="seconds after which a measurement is given up"
    )
    parser.add_argument("--data", type=Path, help="folder of .npz tables; without it two of scikit-learn's")
    parser.add_argument("--out", type=Path, help="Markdown file for the tables")
    return parser.parse_args()


def measured(part: str, options: argparse.Namespace) -> Iterator[Sheet]:
    """Yield the tables of a part."""
    quick, rounds = options.quick, 1 if options.quick else options.rounds
    match part:
        case "dense":
            shapes = options.shapes or (dense.QUICK_SHAPES if quick else dense.SHAPES)
            yield from dense.measure(shapes, options.threads, rounds)
        case "tables":
            yield tables.measure(options.data, quick, rounds)
        case "sparse":
            yield sparse.measure(quick, rounds)
        case "stream":
            yield stream.measure(0.1 if quick else 12.0 if options.full else 1.0)
        case "dask":
            yield workers.measure(quick)
        case "gpu":
            yield card.measure(quick, rounds)
        case "batches":
            yield Sheet("Steps with batches", ["script"], [["batches.py"]])


def markdown(sheets: list[Sheet]) -> str:
    """Return all tables, and what they were measured on."""
    found = facts()
    packages = ", ".join(f"{name} {version}" for name, version in found["packages"].items())
    machine = f"{found['date']}, {found['processor']}, {found['cores']} cores, Python {found['python']}; {packages}."
    return "\n".join(
        ["# Whole fits", "", f"Written by `benchmarks/fits.py`. {machine}", "", *(s.markdown() for s in sheets)]
    )


def main() -> None:
    options, console, sheets = arguments(), Console(), []
    child.limit = options.limit
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that folders and processes are cleaned up
    for part in (*PARTS, "batches") if "all" in options.parts else options.parts:
        for sheet in measured(part, options):
            sheets.append(sheet)
            sheet.show(console)
            if options.out:  # after every table: a long run that is interrupted leaves what it has
                options.out.write_text(markdown(sheets))


if __name__ == "__main__":
    main()
