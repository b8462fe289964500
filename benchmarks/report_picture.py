"""Make the picture of a report: a fit of made-up patients by the command line, and its page in Chromium.

    python benchmarks/report_picture.py                     # rewrites docs/images/report.png
    python benchmarks/report_picture.py --keep folder       # and leaves the table, the model and more pictures there

The records are made up, and the fit is private: its numbers are others each time.
"""

import argparse
import csv
import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np

from epsteps.cli import app

ROOT = Path(__file__).parent.parent
RECORDS, SEED = 120_000, 1
WARDS = ["cardiology", "surgery", "geriatrics", "neurology", "orthopaedics", "oncology", "urology", "dermatology"]
WARDS += ["psychiatry", "emergency"]
INSURANCES, ARRIVALS = ["public", "private", "none"], ["planned", "emergency"]
SCHEMA = """\
target = "readmitted"
[columns.age]
type = "numeric"
low = 18
high = 100
[columns.days_in_hospital]
type = "numeric"
low = 0
high = 60
[columns.systolic_pressure]
type = "numeric"
low = 70
high = 230
missing = true
[columns.medications]
type = "numeric"
low = 0
high = 25
[columns.ward]
type = "category"
values = {wards}
[columns.insurance]
type = "category"
values = {insurances}
[columns.arrival]
type = "category"
values = {arrivals}
[columns.readmitted]
type = "category"
values = ["no", "yes"]
"""


def write_table(path: Path) -> None:
    """Write made-up patients as a .csv file."""
    rng = np.random.default_rng(SEED)
    age = np.clip(rng.normal(62, 17, RECORDS), 18, 100)
    days = np.minimum(rng.gamma(2.0, 4.0, RECORDS), 60)
    pressure, medications = rng.normal(135, 20, RECORDS), np.minimum(rng.poisson(6, RECORDS), 25)
    ward, insurance = rng.integers(len(WARDS), size=RECORDS), rng.integers(len(INSURANCES), size=RECORDS)
    arrival = rng.random(RECORDS) < 0.45
    of_ward = np.array([0.9, -0.4, 0.7, 0.2, -0.8, 1.1, -0.2, -1.2, 0.4, 0.1])
    score = 0.05 * (age - 62) + 0.09 * (days - 8) + 0.14 * (medications - 6) + 1.1 * arrival + of_ward[ward] - 0.9
    readmitted = np.where(rng.random(RECORDS) < 1 / (1 + np.exp(-score)), "yes", "no")
    measured = np.where(rng.random(RECORDS) > 0.06, np.round(pressure).astype(int).astype(str), "")
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        names = ("age", "days_in_hospital", "systolic_pressure", "medications", "ward", "insurance", "arrival")
        writer.writerow([*names, "readmitted"])
        for i in range(RECORDS):
            told = [WARDS[ward[i]], INSURANCES[insurance[i]], ARRIVALS[int(arrival[i])]]
            writer.writerow([f"{age[i]:.0f}", f"{days[i]:.0f}", measured[i], medications[i], *told, readmitted[i]])


def fit(folder: Path) -> Path:
    """Fit a model with a ledger that has spent something already, and return its report."""
    table, schema, ledger = folder / "patients.csv", folder / "patients.toml", folder / "budget.db"
    write_table(table)
    schema.write_text(SCHEMA.format(wards=WARDS, insurances=INSURANCES, arrivals=ARRIVALS).replace("'", '"'))
    account = ["--ledger", str(ledger), "--dataset", "Saint Anna, 2025"]
    app(["ledger", "create", str(ledger), "Saint Anna, 2025", "--epsilon", "4"], standalone_mode=False)
    common = [str(table), "--schema", str(schema), *account, "--yes", "--intervals", "0.95"]
    app(["fit", *common, "--epsilon", "0.75", "--out", str(folder / "first")], standalone_mode=False)
    more = ["--epsilon", "1", "--approved-by", "Dr. E. Moreau, data protection", "--out", str(folder / "model")]
    app(["fit", *common, *more], standalone_mode=False)
    return folder / "model" / "report.html"


def shoot(page: Path, picture: Path, width: int, height: int) -> None:
    """Write a picture of the page at a width; more than that in a frame, as Chromium's own windows are wide."""
    frame = picture.with_suffix(".frame.html")
    frame.write_text(
        f'<!doctype html><body style="margin:0"><iframe src="file://{page}" '
        f'style="border:0;width:{width}px;height:{height}px"></iframe>'
    )
    chromium(f"--window-size={max(width, 500)},{height}", f"--screenshot={picture}", f"file://{frame}")
    frame.unlink()


def chromium(*options: str) -> None:
    """Run Chromium without a window, a profile and a network."""
    program = shutil.which("chromium") or shutil.which("google-chrome")
    if program is None:
        raise SystemExit("Chromium is needed for the pictures: on Debian, apt-get install chromium.")
    quiet = "--headless --no-sandbox --disable-gpu --no-first-run --disable-background-networking --disable-sync"
    quiet += " --disable-component-update --disable-quic --hide-scrollbars --force-color-profile=srgb"
    with tempfile.TemporaryDirectory() as profile:
        command = [program, *quiet.split(), f"--user-data-dir={profile}", *options]
        subprocess.run(command, check=True, capture_output=True, timeout=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "images" / "report.png")
    parser.add_argument("--keep", type=Path, help="an empty folder for the table, the model and more pictures")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = (arguments.keep or Path(name)).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        page = fit(folder)
        shoot(page, arguments.out.resolve(), 1000, 1480)
        if arguments.keep:
            shoot(page, folder / "wide.png", 1280, 5200)
            shoot(page, folder / "narrow.png", 390, 8200)
            chromium("--no-pdf-header-footer", f"--print-to-pdf={folder / 'report.pdf'}", f"file://{page}")


if __name__ == "__main__":
    main()
