"""Measure the plan of the house: rooms, files, lines, type tests, comparisons of units, and the walk of one fit.

    python benchmarks/house.py                                              # this checkout
    python benchmarks/house.py --against ../old/src/epsteps --out FILE.md   # beside ``git worktree add ../old COMMIT``
    python benchmarks/house.py ../old/src/epsteps --list                    # every line that was counted

**Type tests** hold a value against a class of a family (plans, budgets and costs, losses, domains and what they give
kernels, noise shapes; the names are in ``FAMILIES``, heirs of those classes belong too): ``isinstance``,
``issubclass``, ``type(x)`` or ``x.__class__`` or its name compared by ``is``, ``==`` or ``in``, a class pattern of
``match``, a dictionary keyed by classes, ``function.register(Class)``. A name that stands for classes
(``type(x) in OWN``, the parameter ``kinds``) counts as those. A test is *inside its room*, and not counted, in the
folder that defines the class; in that file alone where it lies at the top of the tree or directly in ``methods/``. One
that concerns two families counts for both.

**Comparisons of units** hold a value against "epsilon", "rho" or "mu" by ``==``, ``!=``, ``in``, ``not in`` or
``case``, outside ``budgets/``. Where what is compared is called ``name`` it is that of a parameter, and not counted.
Beside them stand comparisons of one unit with another (``noise.unit != unit``), and dictionaries keyed by units.

**The walk** of a fit is the list of the named functions of epsteps that it calls, each where it is first called, in a
fresh process, planning included (``house_walk.py``). Changes of file are neighbours in this list that stand in
different files: how often somebody who reads the functions in the order in which they run turns to another file.
"""

import argparse
import ast
import functools
import io
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

FAMILIES = {
    "plans": "Plan StepsPlan PublishedPlan ObjectivePlan OutputPlan StatisticsPlan CurvaturePlan SearchPlan Minimised",
    "budgets": "Budget Pure Concentrated Approximate Selection Corners Expense Cost Epsilon Rho Mu Composed",
    "losses": "Loss Logistic CappedLogistic HalfExponential SmoothedHinge Squared PseudoHuber Softmax",
    "domains": "Domain Ball Box Recipe Clipping Shortening",
    "shapes": "Shape Mechanism KNorm Gaussian Body Ellipsoid Hull Covariance HullCovariance MatrixNoise Wishart",
}
# Classes of the same names that belong to no family: balls of interval arithmetic, saturations, launches of kernels.
OTHERS = re.compile(r"(^|[/.])(reals|saturations?|gpu)([/.]|$)")
UNITS = {"epsilon", "rho", "mu"}
SHARED = {".", "methods"}  # folders whose files are rooms of their own
PAPER = ("paper/", "experiments/")
WALK = Path(__file__).resolve().with_name("house_walk.py")


class Place(NamedTuple):
    """A line of source that was counted, and what for."""

    kind: str
    path: str
    line: int
    code: str


class Tree:
    """The parsed files of one source tree, by their path within it."""

    def __init__(self, texts: dict[str, str]) -> None:
        self.texts = texts
        self.nodes = {path: list(ast.walk(ast.parse(text))) for path, text in texts.items()}
        self.values = {path: _values(nodes) for path, nodes in self.nodes.items()}
        self.family = {name: family for family, names in FAMILIES.items() for name in names.split()}
        self.homes: dict[str, list[str]] = defaultdict(list)
        for path, node in self.each(ast.ClassDef):
            if not OTHERS.search(path):
                self.homes[node.name].append(path)
                for base in map(_tail, node.bases):
                    if base in self.family:
                        self.family.setdefault(node.name, self.family[base])
        self.imports: dict[str, dict[str, str]] = {path: {} for path in texts}
        for path, node in self.each(ast.ImportFrom):
            if node.level or (node.module or "").startswith("epsteps"):
                self.imports[path] |= {alias.asname or alias.name: node.module or "" for alias in node.names}

    def each(self, *kinds: type) -> Iterator[tuple]:
        """Yield all nodes of some kinds, with the paths of their files."""
        for path, nodes in self.nodes.items():
            yield from ((path, node) for node in nodes if isinstance(node, kinds))

    def place(self, kind: str, path: str, node) -> Place:
        """Return where a node stands."""
        return Place(kind, path, node.lineno, self.texts[path].splitlines()[node.lineno - 1].strip())

    def classes(self, path: str, expression: ast.expr, seen: frozenset[str] = frozenset()) -> set[str]:
        """Return the classes of the families that an expression names, itself or through names that stand for them."""
        classes = set()
        for name in set(_names(expression)) - seen:
            module = self.imports[path].get(name)
            if name in self.family and not OTHERS.search(f"{path}.{module}"):
                classes.add(name)
            for home in [path] if module is None else self.values:
                for value in self.values[home].get(name, ()):
                    classes |= self.classes(home, value, seen | {name})
        return classes

    def is_inside(self, path: str, name: str) -> bool:
        """Tell whether a file stands in the room of a class."""
        folders = {Path(home).parent.as_posix() for home in self.homes[name]} - SHARED
        return path in self.homes[name] or path.startswith(tuple(folder + "/" for folder in folders))


def _tail(node: ast.AST) -> str:
    """Return the last name of ``a``, ``x.a``, ``a[...]`` or ``a(...)``."""
    node = node.func if isinstance(node, ast.Call) else node.value if isinstance(node, ast.Subscript) else node
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def _names(expression: ast.AST) -> Iterator[str]:
    """Yield the names in an expression, without the functions it calls: ``Ball(1)`` is a value, and names no class."""
    if isinstance(expression, ast.Name | ast.Attribute):
        yield _tail(expression)
    elif not isinstance(expression, ast.Call) or _tail(expression) in ("tuple", "set", "frozenset", "get_args"):
        for child in ast.iter_child_nodes(expression):
            yield from _names(child)
    elif isinstance(expression.func, ast.Attribute):  # such as KINDS.values()
        yield from _names(expression.func.value)


def _values(nodes: list[ast.AST]) -> dict[str, list[ast.expr]]:
    """Return what the names of a file stand for: assigned, taken from a loop, or handed to a function of the file."""
    values = defaultdict(list)
    functions = {node.name: node.args for node in nodes if isinstance(node, ast.FunctionDef)}
    for node in nodes:
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.For | ast.comprehension):
            value = node.iter if isinstance(node, ast.For | ast.comprehension) else node.value
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                for part in ast.walk(target):
                    if isinstance(part, ast.Name) and value:
                        values[part.id].append(value)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in functions:
            parameters = functions[node.func.id]
            for parameter, value in zip(parameters.posonlyargs + parameters.args, node.args, strict=False):
                values[parameter.arg].append(value)
    return values


def _tested(node: ast.AST) -> list[ast.expr]:
    """Return the expressions that a node tests a type against."""
    if isinstance(node, ast.Call):
        if _tail(node) in ("isinstance", "issubclass"):
            return node.args[1:]
        return node.args if isinstance(node.func, ast.Attribute) and node.func.attr == "register" else []
    if isinstance(node, ast.Compare):
        sides = [node.left, *node.comparators]
        return [side for side in sides if not _is_type(side)] if any(map(_is_type, sides)) else []
    if isinstance(node, ast.MatchClass):
        return [node.cls]
    return [key for key in node.keys if key is not None] if isinstance(node, ast.Dict) else []


def _is_type(node: ast.expr) -> bool:
    if isinstance(node, ast.Attribute):
        return node.attr == "__class__" or (node.attr in ("__name__", "__qualname__") and _is_type(node.value))
    return isinstance(node, ast.Call) and _tail(node) == "type"


def type_tests(tree: Tree) -> list[Place]:
    """Return the type tests outside the rooms of what they test, with the family as kind."""
    places = []
    for path, node in tree.each(ast.Call, ast.Compare, ast.MatchClass, ast.Dict):
        classes = set()
        for expression in _tested(node):
            if not isinstance(expression, ast.Constant):
                classes |= tree.classes(path, expression)
            elif isinstance(node, ast.Compare) and expression.value in tree.family:
                classes.add(expression.value)
        families = {tree.family[name] for name in classes if not tree.is_inside(path, name)}
        places += [tree.place(family, path, node) for family in sorted(families)]
    return places


def unit_comparisons(tree: Tree) -> list[Place]:
    """Return comparisons of units outside budgets: with a text, with each other, and dictionaries keyed by them."""
    return [
        tree.place(kind, path, node)
        for path, node in tree.each(ast.Compare, ast.MatchValue, ast.Dict)
        if not path.startswith("budgets/") and (kind := _of_units(node))
    ]


def _of_units(node: ast.AST) -> str | None:
    if isinstance(node, ast.Dict):
        return "unit tables" if node.keys and {getattr(key, "value", None) for key in node.keys} <= UNITS else None
    if isinstance(node, ast.MatchValue):
        return "units" if getattr(node.value, "value", None) in UNITS else None
    if not isinstance(node, ast.Compare) or not isinstance(node.ops[0], ast.Eq | ast.NotEq | ast.In | ast.NotIn):
        return None
    sides = [part for side in (node.left, *node.comparators) for part in getattr(side, "elts", [side])]
    tails, constants = set(map(_tail, sides)), {side.value for side in sides if isinstance(side, ast.Constant)}
    if constants & UNITS and "name" not in tails:
        return "units"
    return "units with units" if not constants and "unit" in tails else None


def code_lines(text: str, nodes: list[ast.AST]) -> set[int]:
    """Return the lines with code: no docstrings, comments or empty lines."""
    lines, silent = set(), {"COMMENT", "NL", "NEWLINE", "INDENT", "DEDENT", "ENDMARKER"}
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if tokenize.tok_name[token.type] not in silent:
            lines |= set(range(token.start[0], token.end[0] + 1))
    for node in nodes:
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node):
            lines -= set(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    return lines


def longest_chain(tree: Tree) -> int:
    """Return how many rooms the longest chain of imports has, each room importing the next (none of them twice)."""
    rooms, edges, depths = set(map(_room, tree.texts)) - {"__init__"}, defaultdict(set), {}
    for path, node in tree.each(ast.ImportFrom):
        module = (node.module or "").split(".")
        if module[0] == "epsteps" and node.col_offset == 0:  # not those for type checkers, or on demand
            edges[_room(path)] |= {module[1]} if module[1:] else {alias.name for alias in node.names}

    def depth(room: str, above: frozenset[str]) -> int:
        if room not in depths:
            below = edges[room] & rooms - above - {room}
            depths[room] = 1 + max((depth(low, above | {room}) for low in sorted(below)), default=0)
        return depths[room]

    return max(depth(room, frozenset()) for room in sorted(rooms))


def _room(path: str) -> str:
    return path.split("/")[0].removesuffix(".py")


@functools.cache
def measure(root: Path) -> tuple[dict[str, str], list[Place]]:
    """Return the rows of the table for one tree, and every place that was counted."""
    tree = Tree({file.relative_to(root).as_posix(): file.read_text() for file in sorted(root.rglob("*.py"))})
    code = {path: code_lines(text, tree.nodes[path]) for path, text in tree.texts.items()}
    sizes = {path: (1, len(text.splitlines()), len(code[path])) for path, text in tree.texts.items()}
    inner = [size for path, size in sizes.items() if not path.startswith(PAPER)]
    spans = [(path, range(node.lineno, node.end_lineno + 1)) for path, node in tree.each(ast.FunctionDef)]
    functions = sorted(len(code[path].intersection(span)) for path, span in spans)
    places = type_tests(tree) + unit_comparisons(tree)
    kinds = Counter(place.kind for place in places)
    names = Counter(Path(path).name for path in tree.texts if not path.endswith("__init__.py"))
    assigned = re.findall(r"^(_?[A-Z][A-Z0-9_, ]+)(?::[^=\n]+)? = ", "\n".join(tree.texts.values()), re.MULTILINE)
    rounding = [name for targets in assigned for name in targets.split(", ") if re.search("(OUT|IN|UP|DOWN)WARD", name)]
    rows = {
        "rooms": len(set(map(_room, tree.texts)) - {"__init__"}),
        "longest chain of rooms that import each other": longest_chain(tree),
        "files / lines / code lines": " / ".join(map(str, map(sum, zip(*sizes.values(), strict=True)))),
        "the same without the paper's room": " / ".join(map(str, map(sum, zip(*inner, strict=True)))),
        "classes": sum(1 for _ in tree.each(ast.ClassDef)),
        "code lines of a function: median / p90 / max": f"{statistics.median(functions):g} / "
        f"{functions[9 * len(functions) // 10]} / {functions[-1]}",
        "type tests on " + " / ".join(FAMILIES): " / ".join(str(kinds[family]) for family in FAMILIES),
        "comparisons of unit strings": kinds["units"],
        "units with units; dictionaries keyed by units": f"{kinds['units with units']}; {kinds['unit tables']}",
        "constants called OUTWARD, INWARD or alike": len(rounding),
        "file names used more than once": sum(count > 1 for count in names.values()),
    }
    return {name: str(value) for name, value in rows.items()}, sorted(places)


def walk(root: Path, fit: str) -> list[int]:
    """Return the files and the changes of file of a fit, in a fresh process that imports the given tree."""
    with tempfile.TemporaryDirectory() as folder:
        settings = {"cwd": folder, "env": os.environ | {"PYTHONPATH": str(root.resolve().parent)}}
        done = subprocess.run(
            [sys.executable, str(WALK), fit], stdout=subprocess.PIPE, text=True, check=True, **settings
        )
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    """Measure, print, and write what was asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("root", type=Path, nargs="?", default=Path(__file__).resolve().parents[1] / "src" / "epsteps")
    parser.add_argument("--against", type=Path, help="the tree before")
    parser.add_argument("--names", nargs=2, default=["before", "after"], help="the titles of the two columns")
    parser.add_argument("--list", action="store_true", help="print every line that was counted")
    parser.add_argument("--out", type=Path, help="a Markdown file for the table")
    options = parser.parse_args()
    trees = [tree for tree in (options.against, options.root) if tree is not None]
    columns = [measure(tree)[0] for tree in trees]
    table = [["", *options.names[-len(trees) :]], ["---"] * (1 + len(trees))]
    table += [[name, *(column[name] for column in columns)] for name in columns[-1]]
    for fit in ("Nesterov's method", "estimator", "CSV file"):
        walks = ["{}, {}".format(*walk(tree, fit)) for tree in trees]
        table.append([f"{fit}: files walked through, changes of file", *walks])
    text = "".join("| " + " | ".join(row) + " |\n" for row in table)
    print(text)
    for place in measure(options.root)[1] if options.list else ():
        print(f"{place.kind}\t{place.path}:{place.line}: {place.code}")
    if options.out:
        options.out.write_text(text)


if __name__ == "__main__":
    main()
