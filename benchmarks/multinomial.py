"""Seven classes at once: `python benchmarks/multinomial.py --data covertype.npz`, private softmax and scikit-learn's.

The file holds X_train, y_class_train, X_test, y_class_test and feature_names. Every number is from seeded experiments:
nothing here is private.
"""

import argparse
from pathlib import Path

import numpy as np
from accuracy_parts.encodings import from_names
from sklearn.linear_model import LogisticRegression

import epsteps as es

CLASSES = tuple(range(1, 8))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--records", type=int, default=60_000, help="of the training part, its first")
    parser.add_argument("--epsilons", type=float, nargs="+", default=[0.1, 0.5, 1.0, 2.0])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--out", type=Path, help="file for the table, as Markdown")
    return parser.parse_args()


def model(epsilon: float, delta: float, seed: int, encoding) -> es.PrivateLogisticRegression:
    return es.PrivateLogisticRegression(
        epsilon,
        delta=delta,
        bounds=(encoding.low, encoding.high),
        one_hot=encoding.one_hot,
        classes=CLASSES,
        random_state=seed,
    )


def main() -> None:
    asked = arguments()
    data = np.load(asked.data)
    X, y = data["X_train"][: asked.records].astype(float), data["y_class_train"][: asked.records]
    X_test, y_test = data["X_test"].astype(float), data["y_class_test"]
    encoding = from_names(asked.data.stem, [str(name) for name in data["feature_names"]])
    lines = ["| privacy | " + " | ".join(f"ε = {e:g}" for e in asked.epsilons) + " |"]
    lines.append("| --- |" + " --- |" * len(asked.epsilons))
    for label, delta in (("ε", 0.0), ("ε, δ = 1e-5", 1e-5)):
        entries = []
        for epsilon in asked.epsilons:
            fits = (model(epsilon, delta, seed, encoding).fit(X, y) for seed in range(asked.runs))
            scores = [fit.score(X_test, y_test) for fit in fits]
            entries.append(f"{np.mean(scores):.3f} ± {np.std(scores, ddof=1) / np.sqrt(asked.runs):.3f}")
            print(label, epsilon, entries[-1], flush=True)
        lines.append(f"| {label} | " + " | ".join(entries) + " |")
    exact = LogisticRegression(max_iter=300).fit(X, y).score(X_test, y_test)
    majority = np.max(np.unique(y_test, return_counts=True)[1]) / len(y_test)
    lines += ["", f"Not private: {exact:.3f}. Majority: {majority:.3f}. n = {len(X)}, d = {X.shape[1]}, 7 classes."]
    print("\n".join(lines))
    if asked.out is not None:
        asked.out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
