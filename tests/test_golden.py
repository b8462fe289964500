"""What the library answered when the golden files were written, it answers today: paths, plans, texts, signatures.

The questions and the way of comparing are those of ``tests/golden/write.py``. Where this machine's floats are those of
the machine that wrote the files, every bit is compared; elsewhere numbers may differ by their rounding.
"""

import importlib.util
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import epsteps as es

pytest.importorskip("sklearn")
_PATH = Path(__file__).parent / "golden" / "write.py"
_SPEC = importlib.util.spec_from_file_location("golden_write", _PATH)
assert _SPEC is not None
assert _SPEC.loader is not None
golden = sys.modules["golden_write"] = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(golden)

PATHS, PLANS, NUMBERS, FILES = (golden.read(f"{name}.json") for name in ("paths", "plans", "numbers", "files"))
QUESTIONS, PLAN_QUESTIONS = golden.questions(), golden.plan_questions()
EXACT = golden.read("machine.json")["floats"] == golden.fingerprint()
NEEDED = {"fast": "numba", "gpu": "torch", "parquet": "pyarrow"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    with golden.FOLDER.opened(tmp_path_factory.mktemp("golden")) as path, golden.small_machine():
        yield path


def compare(expected, found, exact=EXACT):
    differences = list(golden.differences(expected, found, exact=exact))
    assert not differences, "\n".join(differences[:5])


def test_every_question_has_its_answer_and_no_answer_is_left_over():
    assert set(QUESTIONS) == set(PATHS)
    assert set(PLAN_QUESTIONS) == set(PLANS)
    assert set(golden.numbers()) == set(NUMBERS)
    assert {path.name for path in (golden.HERE / "cli").iterdir()} == {
        *(f"{name}.txt" for name in golden.COMMANDS),
        "model.json",
        "report.html",
    }


@pytest.mark.parametrize("name", PATHS, ids=str)
@pytest.mark.usefixtures("folder")
def test_a_path_is_the_same(name):
    question = QUESTIONS[name]
    if find_spec(NEEDED.get(question["source"], "numpy")) is None:
        pytest.skip(f"{question['source']} is not installed")
    # The digest of a machine's floats does not cover those of torch.
    in_floats = question["source"] == "gpu" and question["run"].get("arithmetic") == "float"
    compare(PATHS[name], golden.path_answer(question), exact=EXACT and not in_floats)


@pytest.mark.parametrize("method", golden.METHODS)
def test_plans_say_the_same(method):
    """All plans of a method in one test, which names those that differ: quicker than a test each."""
    names = [name for name, question in PLAN_QUESTIONS.items() if question["method"] == method]
    expected = {name: PLANS[name] for name in names}
    compare(expected, {name: golden.plan_answer(PLAN_QUESTIONS[name]) for name in names})


@pytest.mark.parametrize("name", golden.WHOLE)
def test_a_plan_is_written_the_same_and_is_read_again(name):
    plan = golden.whole_plan(name)
    stored, page = golden.read(f"plans/{name}.json"), golden.read(f"plans/{name}.txt")
    compare(stored, plan.to_json())
    compare(page, str(plan))
    kind = getattr(es, type(plan).__name__)
    assert kind.from_json(plan.to_json()).to_json() == plan.to_json()
    again = kind.from_json(stored)
    compare(stored, again.to_json())  # some of it is computed anew, by this machine's floats
    compare(page, str(again))


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.usefixtures("folder")
def test_a_number_is_the_same(name):
    compare(NUMBERS[name], golden.refused(golden.numbers()[name]))


@pytest.mark.parametrize("name", [*(f"{name}.txt" for name in golden.COMMANDS), "model.json", "report.html"])
def test_a_command_says_the_same(name, folder):
    compare(golden.read(f"cli/{name}"), golden.command_answers(folder)[name])


@pytest.mark.parametrize("name", FILES)
def test_a_command_leaves_the_same_file(name, folder):
    compare(FILES[name], golden.command_answers(folder)[name])


def test_public_signatures_are_the_same():
    assert golden.signatures() == golden.read("signatures.txt")


def test_one_flipped_bit_is_a_difference():
    """And so is one that rounding cannot explain, on any machine."""
    name = next(name for name, answer in PATHS.items() if "path" in answer)
    stored = golden.np.frombuffer(golden.base64.b64decode(PATHS[name]["path"]["doubles"]))
    for bit, exact in ((0, True), (40, False)):
        flipped = stored.copy()
        flipped.view("i8")[-1] ^= 1 << bit
        answer = golden.encoded(flipped.reshape(PATHS[name]["path"]["shape"]))
        assert len(list(golden.differences(PATHS[name]["path"], answer, exact=exact))) == 1
        assert not list(golden.differences(PATHS[name]["path"], PATHS[name]["path"], exact=exact))


def test_on_another_machine_a_text_may_differ_by_roundings_alone():
    """Also where what looks like a number, and is beyond all floats, is a colour."""
    answers = {"#1e2228 costs 0.500000001": True, "#1e2228 costs 0.51": False, "#1e2229 costs 0.500": False}
    for found, same in answers.items():
        differences = golden.text_differences("#1e2228 costs 0.500", found, exact=False, where="text")
        assert (not list(differences)) is same, found
