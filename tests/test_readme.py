"""The README's Python runs as printed, and says what it prints; and it stays a first page."""

import re
from pathlib import Path

import numpy as np

README = Path(__file__).parents[1] / "README.md"


def test_the_readmes_python_runs_and_prints_what_it_says(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    first, second = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), flags=re.DOTALL)
    names: dict = {}
    exec(first, names)
    assert capsys.readouterr().out.strip() == re.findall(r"^print\(.*\)  # (.*)$", first, flags=re.MULTILINE)[0]
    assert names["model"].score(names["X"], names["y"]) > 0.9
    exec(second, names)
    assert "Plan: nesterov" in capsys.readouterr().out
    assert names["result"].x.shape == (5,)
    assert not names["result"].seeded
    assert np.all(np.isfinite(names["result"].path))


def test_a_model_takes_five_lines_and_the_page_is_short():
    lines = README.read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 150
    begin = lines.index("```python")
    assert len([line for line in lines[begin + 1 : lines.index("```", begin)] if line]) <= 5
    assert begin < 15
