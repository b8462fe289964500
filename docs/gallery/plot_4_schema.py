"""
A table with categories and missing values
==========================================

A schema declares what is publicly known of a table's columns. It learns nothing from data, so that it costs nothing,
and every sensitivity follows from it.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import epsteps as es

# %%
# A made-up table: numbers, texts, and cells that nobody filled in.

rng = np.random.default_rng(0)
n = 30_000
table = pd.DataFrame(
    {
        "age": rng.integers(18, 96, n).astype(float),
        "smoker": rng.choice(["never", "former", "current"], n, p=[0.5, 0.3, 0.2]),
        "department": rng.choice(["surgery", "cardiology", "oncology", "general"], n),
    }
)
risk = 0.05 * (table["age"] - 60) + 1.0 * (table["smoker"] == "current") + 0.8 * (table["department"] == "cardiology")
table["readmitted"] = np.where(risk + rng.logistic(size=n) > 0, "yes", "no")
table.loc[rng.random(n) < 0.1, "age"] = np.nan
table.loc[rng.random(n) < 0.1, "smoker"] = None
print(table.head())

# %%
# Ranges and categories come from the form, not from the table: nobody in it is 110, and nobody has to be.

schema = es.Schema(
    {
        "age": es.Numeric(18, 110, missing=True),
        "smoker": es.Category(["never", "former", "current"], missing=True),
        "department": es.Category(["surgery", "cardiology", "oncology", "general"]),
        "readmitted": es.Category(["no", "yes"]),
    },
    target="readmitted",
)
print(schema)

# %%
# The fit, and the effects of whole ranges and of categories, as log odds.

model = es.PrivateLogisticRegression(epsilon=1.0, domain=schema.domain(), classes=("no", "yes"))
model.fit(schema.encode(table), schema.encode_target(table))

figure, axes = plt.subplots(figsize=(7, 3.4), layout="constrained")
places = np.arange(schema.d)[::-1]
axes.barh(places, model.coef_[0], color=["#0072B2" if value > 0 else "#D55E00" for value in model.coef_[0]])
axes.set_yticks(places, schema.names)
axes.axvline(0, color="0.4", lw=1)
axes.set_xlabel("effect on the log odds of coming back")
plt.show()
print(model.certificate_["guarantee"])
