"""The README's Python runs as printed, and its numbers are what it computes."""

import re
from pathlib import Path

import numpy as np
import pytest

README = Path(__file__).parents[1] / "README.md"


def test_the_readmes_python_runs_and_gives_its_numbers(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(), flags=re.DOTALL)
    names: dict = {}
    for block in blocks:
        exec(block, names)
    assert "Plan: nesterov" in capsys.readouterr().out
    assert names["result"].x.shape == (20,)
    assert not names["result"].seeded
    assert np.all(np.isfinite(names["result"].path))
    claims = re.findall(r"^(es\.\w+\(.*\)) +# ([\d.]+)$", "".join(blocks), flags=re.MULTILINE)
    assert len(claims) == 3
    for expression, number in claims:
        assert eval(expression, names) == pytest.approx(float(number), rel=1e-4)
