"""Mutation testing: a seeded sample of small changes to the privacy-critical rooms, each held against its room's tests.

``make mutants`` runs it. A mutant is the source with one operator, number, comparison or term changed; it is killed if
a test of its room fails. Work is done on copies of the checkout in a temporary folder, never on the checkout itself,
and every outcome is written down as it comes: a run that was stopped goes on where it was. Which tests judge which
files is in ``tests/mutation/rooms.toml``; mutants that change nothing that matters are named, with the reason, in
``tests/mutation/justified.toml``.

    python benchmarks/mutants.py --count 300
    python benchmarks/mutants.py --count 300 --again        # only those that survived, after new tests
    python benchmarks/mutants.py --count 20 --only plans/output
"""

import argparse
import hashlib
import json
import math
import os
import queue
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import cosmic_ray.plugins
import parso
from cosmic_ray.ast import get_ast
from cosmic_ray.mutating import MutationVisitor
from cosmic_ray.operators.operator import Operator

ROOT = Path(__file__).resolve().parents[1]
TABLES = ROOT / "tests" / "mutation"
PACKAGE = Path("src") / "epsteps"

# Changes that may go unnoticed; those that raise a TypeError at once (such as a bitwise "or" of floats) prove nothing.
ARITHMETIC = ("Add_Sub", "Sub_Add", "Mul_Div", "Div_Mul", "Pow_Mul", "FloorDiv_Mul", "Mod_Mul", "LShift_RShift")
COMPARISONS = ("Lt_LtE", "Lt_Gt", "LtE_Lt", "LtE_GtE", "Gt_GtE", "Gt_Lt", "GtE_Gt", "GtE_LtE", "Eq_NotEq", "NotEq_Eq")
IDENTITIES = ("Is_IsNot", "IsNot_Is")
OTHERS = (
    *("AddNot", "NumberReplacer", "ReplaceTrueWithFalse", "ReplaceFalseWithTrue", "ReplaceAndWithOr"),
    *(
        "ReplaceOrWithAnd",
        "ZeroIterationForLoop",
        "ReplaceUnaryOperator_Delete_USub",
        "ReplaceUnaryOperator_Delete_Not",
    ),
)


OPPOSITES = (("max", "min"), ("maximum", "minimum"), ("ceil", "floor"), ("all", "any"))
SWAPS = {a: b for pair in OPPOSITES for a, b in (pair, pair[::-1])}


class DropTerm(Operator):
    """Leave out one term of a sum: ``a + b`` becomes ``a`` or ``b``. Privacy bugs are often a term forgotten."""

    def mutation_positions(self, node):
        """Yield where it applies."""
        if node.type == "arith_expr":
            for term in node.children[::2]:
                yield term.start_pos, term.end_pos

    def mutate(self, node, index):
        """Return the changed node."""
        left = [child for place, child in enumerate(node.children) if place not in (2 * index - 1, 2 * index)]
        if index == 0:
            left = node.children[2:] if node.children[1].value == "+" else node.children[1:]
        prefix, code = node.get_first_leaf().prefix, "".join(child.get_code() for child in left)
        return parso.python.tree.Operator(code.strip(), node.start_pos, prefix)

    @classmethod
    def examples(cls):
        """Return none: they would be for cosmic-ray's own tests."""
        return ()


def _is_function(name) -> bool:
    """Whether a name is called as Python's own or as one of NumPy's or math's: a release's method has no opposite."""
    dot = name.get_previous_leaf()
    if dot is None or dot.value != ".":
        return not name.is_definition()
    return dot.get_previous_leaf().value in ("np", "math")


class SwapName(Operator):
    """Call the opposite function: max for min, ceil for floor."""

    def mutation_positions(self, node):
        """Yield where it applies."""
        if node.type == "name" and node.value in SWAPS and _is_function(node):
            yield node.start_pos, node.end_pos

    def mutate(self, node, index):
        """Return the changed node."""
        node.value = SWAPS[node.value]
        return node

    @classmethod
    def examples(cls):
        """Return none: they would be for cosmic-ray's own tests."""
        return ()


def operators() -> dict[str, Operator]:
    """Return the operators by name."""
    names = [f"ReplaceBinaryOperator_{name}" for name in ARITHMETIC]
    names += [f"ReplaceComparisonOperator_{name}" for name in (*COMPARISONS, *IDENTITIES)]
    found = {name: cosmic_ray.plugins.get_operator(f"core/{name}")() for name in (*names, *OTHERS)}
    return found | {"DropTerm": DropTerm(), "SwapName": SwapName()}


@dataclass(frozen=True)
class Mutant:
    """One change: where it is, the line before and after, and the file's whole text."""

    room: str
    file: str
    line: int
    operator: str
    before: str
    after: str
    text: str

    @property
    def key(self) -> str:
        """What the outcome is kept under: it holds while the file stays the same."""
        return hashlib.sha256(f"{self.file}\n{self.text}".encode()).hexdigest()[:16]


def rooms() -> dict[str, dict]:
    """Return the rooms' tables: files and the tests that judge them."""
    return tomllib.loads((TABLES / "rooms.toml").read_text())


def room_of(file: str, tables: dict[str, dict]) -> str | None:
    """Return the first room that lists the file."""
    return next((name for name, table in tables.items() if any(Path(file).match(g) for g in table["files"])), None)


def places(source: str) -> list[tuple[tuple[int, int], str, int]]:
    """Return every possible change of a source: its position, operator and occurrence."""
    found = []
    for name, operator in operators().items():
        positions = []
        _visit(get_ast(source), lambda node, to=positions, o=operator: to.extend(o.mutation_positions(node)))
        found += [(start, name, occurrence) for occurrence, (start, _) in enumerate(positions)]
    return found


def _visit(node, look) -> None:
    """Walk in the order of cosmic-ray's visitor: a node before its children."""
    look(node)
    for child in getattr(node, "children", ()):
        _visit(child, look)


def mutant(room: str, file: str, source: str, name: str, occurrence: int) -> Mutant | None:
    """Return the mutant, or None if its text is the source or no Python."""
    text = MutationVisitor.mutate_code(source, operators()[name], occurrence)
    if text is None or text == source:
        return None
    try:
        compile(text, file, "exec")
    except SyntaxError:
        return None
    before, after = source.splitlines(), text.splitlines()
    line = next(i for i, (old, new) in enumerate(zip(before, after, strict=False)) if old != new)
    return Mutant(room, file, line + 1, name, before[line].strip(), after[line].strip(), text)


def sample(count: int, seed: int, only: str) -> list[Mutant]:
    """Draw mutants: a place of the source first, each as likely, then one of the changes that are possible there."""
    tables, by_place, sources = rooms(), {}, {}
    for path in sorted((ROOT / PACKAGE).rglob("*.py")):
        file = str(path.relative_to(ROOT))
        room = room_of(file, tables)
        if room is None or only not in file:
            continue
        sources[file] = path.read_text()
        for start, name, occurrence in places(sources[file]):
            by_place.setdefault((room, file, start), []).append((name, occurrence))
    rng, found = random.Random(seed), {}
    order = sorted(by_place, key=lambda place: place[1:])  # by file, so that the rooms do not change the sample
    rng.shuffle(order)
    for room, file, start in order:
        name, occurrence = rng.choice(by_place[room, file, start])
        one = mutant(room, file, sources[file], name, occurrence)
        if one is not None:
            found.setdefault(one.key, one)
        if len(found) == count:
            break
    return list(found.values())


class Worker:
    """A copy of the checkout in which mutants are tried one after the other."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._process = folder, None
        for name in ("src", "tests", "pyproject.toml", "README.md", "docs", "benchmarks"):
            origin = ROOT / name
            if origin.is_dir():
                shutil.copytree(origin, folder / name, ignore=shutil.ignore_patterns("results"))
            elif origin.exists():
                shutil.copy2(origin, folder / name)

    def run(self, tests: list[str], timeout: float, changed: bool = True) -> tuple[str, float, str]:
        """Return "killed", "survived" or "timeout", the seconds, and the line that says why.

        Changed code leaves no compiled files behind, which the next mutant might read.
        """
        command = [sys.executable, *["-B"] * changed, "-m", "pytest", "-x", "-q", "-n0", "-p", "no:cacheprovider"]
        environment = os.environ | {"PYTHONPATH": str(self.folder / "src"), "OMP_NUM_THREADS": "1"}
        start = time.monotonic()
        process = self._process = subprocess.Popen(
            [*command, *tests],
            cwd=self.folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            output, _ = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            self.stop()
            process.communicate()
            return "timeout", time.monotonic() - start, f"more than {timeout:.0f} s"
        said = next((s for s in output.splitlines() if s.startswith(("FAILED", "ERROR"))), output[-200:])
        return "survived" if process.returncode == 0 else "killed", time.monotonic() - start, said[:300]

    def stop(self) -> None:
        """End the tests that are running."""
        if self._process is not None and self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)

    def outcome(self, one: Mutant, tests: list[str], timeout: float) -> tuple[str, float, str]:
        """Try one mutant, with the examples in its own file besides, and put the file back."""
        target = self.folder / one.file
        right, then = target.read_bytes(), target.stat().st_mtime
        try:
            target.write_text(one.text)
            os.utime(target, (then + 1000, then + 1000))  # so that no compiled file passes for it
            return self.run([one.file, *tests], timeout)
        finally:
            target.write_bytes(right)
            os.utime(target, (then, then))


def justified(one: dict) -> str | None:
    """Return the reason for which a mutant may survive, if one was written down."""
    file = TABLES / "justified.toml"
    entries = tomllib.loads(file.read_text()).get("mutant", []) if file.exists() else []
    fields = ("file", "operator", "before", "after")
    return next((e["reason"] for e in entries if all(e.get(f, one[f]) == one[f] for f in fields)), None)


def report(mutants: list[Mutant], done: dict[str, dict], seed: int) -> str:
    """Return the table of rooms, and the survivors with what they change."""
    known = [done[one.key] for one in mutants if one.key in done]
    lines = [
        f"# Mutants\n\nA sample drawn with seed {seed}: {len(known)} of {len(mutants)} were tried.\n",
        "| room | mutants | killed | justified | survived | score |\n| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    survivors = []
    counts: dict[str, Counter] = {name: Counter() for name in (*rooms(), "all")}
    for one in known:
        state = "killed" if one["outcome"] != "survived" else "justified" if justified(one) else "survived"
        survivors += [one] * (state == "survived")
        for name in (one["room"], "all"):
            counts[name][state] += 1
    for name, count in counts.items():
        total = sum(count.values())
        judged = max(total - count["justified"], 1)
        lines.append(
            f"| {name} | {total} | {count['killed']} | {count['justified']} | {count['survived']} "
            f"| {count['killed'] / judged:.1%} |"
        )
    lines.append(f"\n## Survivors\n\n{'' if survivors else 'None.'}")
    for one in survivors:
        lines.append(
            f"{one['file']}:{one['line']} ({one['operator']})\n```diff\n- {one['before']}\n+ {one['after']}\n```"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=300, help="number of mutants")
    parser.add_argument("--seed", type=int, default=1, help="seed of the sample")
    parser.add_argument("--jobs", type=int, default=2, help="mutants that are tried at a time")
    parser.add_argument("--only", default="", help="part of the path of the files to change")
    parser.add_argument("--timeout", type=float, help="seconds per mutant; if not given, tests are measured first")
    parser.add_argument("--again", action="store_true", help="try those again that survived")
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "mutants", help="folder of the outcomes")
    parser.add_argument("--report", type=Path, help="where to write the table, if not there")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that tests that are running are ended, too
    mutants = sample(arguments.count, arguments.seed, arguments.only)
    arguments.out.mkdir(parents=True, exist_ok=True)
    log = arguments.out / "outcomes.jsonl"
    done = {one["key"]: one for one in map(json.loads, log.read_text().splitlines())} if log.exists() else {}
    left = [m for m in mutants if m.key not in done or (arguments.again and done[m.key]["outcome"] == "survived")]
    print(f"{len(mutants)} mutants, {len(left)} to try", flush=True)
    if left:
        with tempfile.TemporaryDirectory() as folder:
            workers = [Worker(Path(folder) / str(number)) for number in range(arguments.jobs)]
            try:
                try_all(workers, left, done, log, arguments.timeout)
            finally:
                for worker in workers:
                    worker.stop()
    text = report(mutants, done, arguments.seed)
    (arguments.report or arguments.out / "mutants.md").write_text(text)
    print(text)


def try_all(workers: list[Worker], left: list[Mutant], done: dict[str, dict], log: Path, timeout: float | None) -> None:
    """Try the mutants, one at a time in each worker; write each outcome down at once.

    Tests that do not pass on unchanged code judge nothing, so that they are run first; a given timeout says that they
    were.
    """
    tables, usual, lock, start = rooms(), {}, threading.Lock(), time.monotonic()

    def measure(worker: Worker, room: str) -> None:
        outcome, usual[room], said = worker.run(tables[room]["tests"], 1200, changed=False)
        print(f"{room}: {outcome}, {usual[room]:.0f} s on unchanged code", flush=True)
        if outcome != "survived":
            usual[room] = math.nan
            print(f"the tests of {room} do not pass on unchanged code: {said}", flush=True)

    def judge(worker: Worker, one: Mutant) -> None:
        outcome, seconds, said = worker.outcome(one, tables[one.room]["tests"], timeout or 2 * usual[one.room] + 60)
        facts = {name: value for name, value in asdict(one).items() if name != "text"}
        with lock:
            done[one.key] = facts | {"key": one.key, "outcome": outcome, "seconds": seconds, "said": said}
            with log.open("a") as file:
                file.write(json.dumps(done[one.key]) + "\n")
            judged.append(one.key)
            print(
                f"[{len(judged)}/{len(left)}, {time.monotonic() - start:.0f} s] {outcome} in {seconds:.0f} s: "
                f"{one.file}:{one.line} {one.before}  ->  {one.after}",
                flush=True,
            )

    judged: list[str] = []
    if timeout is None:
        share(workers, measure, sorted({one.room for one in left}))
    if any(map(math.isnan, usual.values())):
        raise SystemExit("mutants are judged by tests that pass: mend these first.")
    share(workers, judge, left)


def share(workers: list[Worker], task: Callable[[Worker, Any], None], items: list[Any]) -> None:
    """Do a task for every item, one at a time in each worker."""
    waiting = queue.SimpleQueue()
    for item in items:
        waiting.put(item)

    def work(worker: Worker) -> None:
        while True:
            try:
                item = waiting.get_nowait()
            except queue.Empty:
                return
            task(worker, item)

    threads = [threading.Thread(target=work, args=(worker,), daemon=True) for worker in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main()
