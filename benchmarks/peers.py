"""The same gradient by other libraries, for the benchmarks; those that are not installed are left out."""

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np


def gradients(X: np.ndarray, y: np.ndarray, x: np.ndarray, threads: int) -> dict[str, Callable[[], object]]:
    """Return the same gradient by other libraries: scikit-learn's loss class (loss and gradient), torch eager."""
    from sklearn._loss import HalfBinomialLoss
    from sklearn.linear_model._linear_loss import LinearModelLoss

    loss, classes = LinearModelLoss(base_loss=HalfBinomialLoss(), fit_intercept=False), (y > 0).astype(X.dtype)
    ways: dict[str, Callable[[], object]] = {
        "scikit-learn LinearModelLoss": lambda: loss.loss_gradient(x, X, classes, n_threads=threads)
    }
    if find_spec("torch") is not None:
        import torch

        torch.set_num_threads(threads)
        A, b, point = (torch.from_numpy(v) for v in (X, y, x))
        ways["torch eager"] = lambda: -(A.T @ (b * torch.sigmoid(-b * (A @ point)))) / len(b)
        if X.dtype == np.float32 and find_spec("opacus") is not None:
            ways["Opacus, one gradient per record"] = opacus_gradient(A, b, point)
    return ways


def opacus_gradient(A: Any, b: Any, point: Any) -> Callable[[], object]:
    """Return what Opacus computes before it clips and adds noise: the gradient of every record by itself."""
    import torch
    from opacus import GradSampleModule

    layer = torch.nn.Linear(A.shape[1], 1, bias=False)
    layer.weight.data.copy_(point[None])
    module = GradSampleModule(layer)

    def gradient() -> object:
        module.zero_grad()
        torch.nn.functional.softplus(-b * module(A)[:, 0]).mean().backward()
        return layer.weight.grad_sample.sum(0)

    return gradient
