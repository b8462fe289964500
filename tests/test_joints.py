"""Where features of tables meet: transforms, interactions, persons, bought ranges, descriptions, evaluations, parts."""

import numpy as np
import pytest
from test_estimators_tables import COLUMNS, TARGETS, fitted, people, schema_for
from typer.testing import CliRunner

import epsteps as es
from epsteps import tables
from epsteps.cli import app
from epsteps.service.holder import mock

pd = pytest.importorskip("pandas")


@pytest.mark.parametrize("name", TARGETS)
def test_estimators_of_tables_are_evaluated_on_tables(name):
    """A table and a pair are the same records, and so are those of the model's file."""
    model, table = fitted(name), dict(people())
    plan = es.evaluation_plan(model, 600, es.Pure(5.0))
    told = [
        es.evaluate(model, data, plan=plan, rows="training", seed=3).to_dict()["metrics"]
        for data in (table, pd.DataFrame(table), (table, TARGETS[name]), (table, table[TARGETS[name]]))
    ]
    assert told[0] == told[1] == told[2] == told[3]


def test_columns_are_described_as_they_are():
    """Transforms, clips, bins and interactions are of features: means and counts are in the columns' own units."""
    table = {name: column for name, column in people().items() if name in COLUMNS}
    schema = es.Schema({name: COLUMNS[name] for name in table}, "ill", interactions=[("hours", "job")], person="whose")
    told = es.describe(schema, table, es.Pure(1e6), statistics=["means"], seed=1)
    hours = np.clip(np.array(table["hours"], dtype=float), 0, 99)
    age = np.clip(np.array(table["age"], dtype=float), 0, 100)
    means = {row["column"]: row["value"] for row in told.to_dict()["entries"] if row["statistic"] == "mean"}
    assert means["hours"] == pytest.approx(hours.mean(), abs=0.01)
    assert means["age"] == pytest.approx(age.mean(), abs=0.01)
    plain = es.Schema({name: column.plain for name, column in schema.columns.items()})
    assert es.description_plan(schema, 600, es.Pure(1.0)) == es.description_plan(plain, 600, es.Pure(1.0))


def test_bought_ranges_keep_what_else_is_declared():
    columns = {"hours": es.Unbounded(low=0), "job": COLUMNS["job"], "ill": COLUMNS["ill"]}
    schema = es.Schema(columns, "ill", interactions=[("hours", "job")], person="whose")
    table = {name: people()[name] for name in columns}
    bought = es.buy_bounds(schema, table, es.Pure(2.0), seed=1).schema
    assert (bought.interactions, bought.person, bought.target) == (schema.interactions, "whose", "ill")
    assert bought == es.Schema.from_toml(bought.to_toml()) == es.Schema.from_dict(bought.to_dict())
    assert bought.only(["hours"], "ill").bought == bought.with_target(None).bought == bought.bought != ()
    model = es.PrivateLogisticRegression(epsilon=1.0, schema=bought.only(["hours", "job"], "ill"), random_state=1)
    assert model.fit(table | {"whose": list(range(600))}).certificate_["expenses"][0]["cost"] == pytest.approx(2.0)
    with pytest.raises(ValueError, match="no range"):
        schema.domain()
    with pytest.raises(ValueError, match="no range"):
        mock(schema, 10)


@pytest.mark.parametrize("name", ["age", "income", "hours"])
def test_no_range_is_bought_of_a_column_with_a_transform(name):
    schema = es.Schema({name: COLUMNS[name], "ill": COLUMNS["ill"]}, "ill")
    with pytest.raises(ValueError, match="has a transform, a clip or bins"):
        es.bounds_plan(schema, 1000, es.Pure(1.0), columns=[name])


def test_parts_of_persons_are_refused(tmp_path):
    """Records of one person may be in both parts: they would have something in common."""
    X, y = np.random.default_rng(0).random((100, 2)), np.arange(100) % 2
    model = es.PrivateLogisticRegression(bounds=(0, 1), classes=(0, 1), per_person=2)
    with pytest.raises(ValueError, match="may be in both parts"):
        es.fit_held_out(model, X, y)
    with pytest.raises(ValueError, match="--hold-out"):
        es.fit_held_out(es.PrivateLogisticRegression(schema=schema_for("logistic", "ill")), dict(people()), "ill")
    schema, data = tmp_path / "s.toml", tmp_path / "d.csv"
    schema.write_text(schema_for("logistic", "ill").to_toml())
    data.write_text("age,income,hours,job,ill\n" + "50,1000,40,clerk,no\n" * 50)
    asked = ["fit", str(data), "--schema", str(schema), "--epsilon", "1", "--out", str(tmp_path / "m"), "--yes"]
    result = CliRunner().invoke(app, [*asked, "--hold-out", "0.2", "--per-person", "2"])
    assert result.exit_code == 2
    assert "--hold-out and --per-person do not go together" in " ".join(result.output.split())


def test_what_comes_before_a_model_is_the_same_in_every_engine():
    """Exact sums of the same integers, with the same draws: the same bits."""
    pytest.importorskip("numba")
    table = {name: people()[name] for name in ("hours", "job", "ill")}
    known = es.Schema({"hours": es.Numeric(0, 99), "job": COLUMNS["job"], "ill": COLUMNS["ill"]})
    unknown = es.Schema({"hours": es.Unbounded(), "job": COLUMNS["job"], "ill": COLUMNS["ill"]})
    everything = ["counts", "means", "deviations", "quantiles", "histograms", "correlations"]
    for budget in (es.Pure(2.0), es.Concentrated(0.5), es.Approximate(2.0, 1e-6)):
        told = [
            es.describe(known, table, budget, statistics=everything, seed=1, engine=engine).to_dict()
            for engine in ("numpy", "fast")
        ]
        assert told[0] == told[1]
        bought = [
            es.buy_bounds(unknown, table, budget, seed=1, engine=engine).to_dict() for engine in ("numpy", "fast")
        ]
        assert bought[0] == bought[1]


def test_an_evaluation_travels_to_a_data_holder_and_bounds_and_descriptions_do_not(tmp_path):
    """The holder's answer is the one that the same records give here; it is charged there, and nothing else is."""
    kit = pytest.importorskip("service_kit", reason="the service needs its extra")
    site = kit.make_site(tmp_path, es.Pure(50.0), source_seed=5)
    table, schema = kit.table(), kit.schema()
    plan = es.plan(tables.problem_of(schema, kit.N, 1e-2), es.Pure(5.0), method="output")
    model = tables.fit_model(plan, schema, table, seed=1, anyway=True)
    with kit.serving(site):
        people = site.people()
        found = es.evaluate(model, people, es.Pure(2.0))
        here = es.evaluate(model, table, es.Pure(2.0), seed=5)
        assert {name: values.tolist() for name, values in found.published.items()} == {
            name: values.tolist() for name, values in here.published.items()
        }
        assert found.table() == here.table()
        assert people.remaining == pytest.approx(48.0)
        with pytest.raises(ValueError, match="seed is for records on this machine"):
            es.evaluate(model, people, es.Pure(2.0), seed=1)
        with pytest.raises(ValueError, match="other records"):
            es.evaluate(model, people.select(["age"]), es.Pure(2.0))
        for refused in (es.description_plan(schema, kit.N, es.Pure(2.0)), _bounds_of_age(schema, kit.N)):
            with pytest.raises(ValueError, match="is executed where the table is"):
                es.run(refused, people)
        for ask in (es.describe, lambda *given: es.buy_bounds(*given, columns=["age"])):
            with pytest.raises(TypeError, match="bought where the table is"):
                ask(schema, people, es.Pure(1.0))
        assert people.remaining == pytest.approx(48.0)


def _bounds_of_age(schema, n):
    return es.bounds_plan(schema, n, es.Pure(2.0), columns=["age"])
