"""`scripts/predict_dgp.py` on runs of `scripts/train_dgp.py`: what it writes, and its errors."""

import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from gpflow_deep import Predictor, float_type
from gpflow_deep_runs.data.rows import Rows
from gpflow_deep_runs.data.views import Source, TableSpec, load
from scripts import predict_dgp, train_dgp
from tests.scripts.running import Finished, called

TRAIN = ["--num_steps=3", "--num_inducing=5", "--num_predict_samples=4", "--noprogress", "--compare="]


def _write_tables(folder: Path) -> None:
    rng = np.random.default_rng(1)
    size, colour = rng.uniform(20, 90, 60), rng.choice(["red", "blue"], 60)
    houses = pd.DataFrame({"size": size, "colour": colour, "price": 1e5 + 900 * size + 5e3 * rng.normal(size=60)})
    houses.to_csv(folder / "houses.csv", index=False)
    houses[["colour", "size"]].iloc[:7].to_csv(folder / "new_houses.csv", index=False)
    houses[["size"]].to_csv(folder / "no_colour.csv", index=False)
    houses.assign(size=np.where(np.arange(60) == 3, np.nan, size)).to_csv(folder / "hole.csv", index=False)
    houses.assign(colour="green").to_csv(folder / "green.csv", index=False)
    a = rng.normal(size=60)
    kinds = np.array(["ape", "bee", "cow"])[np.digitize(a, [-0.5, 0.5])]
    pd.DataFrame({"a": a, "kind": kinds}).to_csv(folder / "kinds.csv", index=False)
    pd.DataFrame({"a": a, "sick": np.where(a > 0, "yes", "no")}).to_csv(folder / "sick.csv", index=False)
    _write_shop(folder, rng)


def _write_shop(folder: Path, rng: np.random.Generator) -> None:
    """Two targets, one with a currency, and inputs of several kinds of which some are missing; and new rows."""
    cities = rng.choice(["Rome", "Oslo", "Bonn"], 120, p=[0.5, 0.45, 0.05])
    shop = pd.DataFrame({"id": np.arange(120), "size": rng.normal(50, 9, 120).round(2), "city": cities})
    shop["sold"] = [f"{1 + day % 28:02}.{1 + day // 28:02}.2021" for day in rng.integers(0, 300, 120)]
    shop = shop.mask(rng.random(shop.shape) < [0, 0.2, 0, 0])
    shop["price"], shop["rent"] = [f"${3 * x:.2f}" for x in shop["size"].fillna(50)], shop["size"].fillna(50) / 5
    shop.to_csv(folder / "shop.csv", index=False)
    new = shop.drop(columns=["id", "price", "rent"]).head(6).assign(city="Rome", size=40.0)
    new.to_csv(folder / "shop_plain.csv", index=False)
    new.assign(city=["Mars", *["Rome"] * 5]).to_csv(folder / "shop_unknown.csv", index=False)
    new.assign(city=[None, *["Rome"] * 5]).to_csv(folder / "shop_missing.csv", index=False)
    new.assign(size=["?", *["40.0"] * 5], city=["n.n.", *["Rome"] * 5]).to_csv(folder / "shop_texts.csv", index=False)


PREDICTIONS: dict[str, list[str]] = {
    "houses": ["--run_dir=houses", "--data=houses.csv"],
    "new_houses": ["--run_dir=houses", "--data=new_houses.csv"],
    "kinds": ["--run_dir=kinds", "--data=kinds.csv"],
    "sick": ["--run_dir=sick", "--data=sick.csv"],
    "shop": ["--run_dir=shop", "--data=shop.csv"],
    "shop_plain": ["--run_dir=shop", "--data=shop_plain.csv"],
    "shop_unknown": ["--run_dir=shop", "--data=shop_unknown.csv", "--unknown=level"],
    "shop_missing": ["--run_dir=shop", "--data=shop_missing.csv"],
    "shop_texts": ["--run_dir=shop", "--data=shop_texts.csv", "--na_values=?,n.n."],
}

ERRORS: list[tuple[list[str], str]] = [
    (["--run_dir=nowhere", "--data=houses.csv"], r"must be the folder of a trained deep GP, but has no inputs\.json"),
    (["--run_dir=houses", "--data=no_colour.csv"], r"must have the columns of the training data, but lacks 'colour'"),
    (["--run_dir=houses", "--data=green.csv"], r"'green' in row 0 .* give --unknown=level"),
    (
        ["--run_dir=shop", "--data=shop_unknown.csv"],
        r"'city' .* value 'Mars' in row 0 .* 1 such rows\); give --unknown=level",
    ),
    (["--run_dir=shop", "--data=shop_missing.csv", "--missing=error"], r"'city' \(1\); give --missing=impute [^-]*"),
    (["--run_dir=houses", "--data=hole.csv"], r"missing values in 'size' \(1\); give --missing=impute [^-]*"),
    (
        ["--run_dir=houses", "--data=houses.csv", "--output=x.txt"],
        r"--output must end in \.csv or \.csv\.gz, got x.txt",
    ),
    (["--run_dir=houses", "--data=houses.csv", "--num_predict_samples=0"], "--num_predict_samples must be at least 1"),
    (["--run_dir=houses"], "--data must be given"),
    (["--run_dir=mixed", "--data=houses.csv"], "mixed: model and units must have equally many inputs, got 1 and 3"),
    (["--run_dir=cut", "--data=houses.csv"], r"model\.npz cannot be read as a deep GP"),
    (["--run_dir=early", "--data=houses.csv"], r"has no model\.npz: no checkpoint was reached yet"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("predict")
    _write_tables(folder)
    targets = {"houses": ["--target=price"], "kinds": ["--target=kind"], "sick": ["--target=sick", "--num_layers=1"]}
    targets["houses"].append("--dtype=float32")
    targets["shop"] = ["--target=price,rent", "--missing=impute", "--rare=10", "--num_layers=1"]
    for name, extra in targets.items():
        arguments = [f"--run_dir={name}", f"--data={name}.csv", *extra, *TRAIN]
        done = called(train_dgp.main, "train_dgp.py", folder, arguments)
        assert done.code == 0, done.err
        (folder / name / "printed.txt").write_text(done.out)
    inputs = (folder / "houses" / "inputs.json").read_text()
    for name in ("mixed", "cut", "early"):
        (folder / name).mkdir()
        (folder / name / "inputs.json").write_text(inputs.replace("true", "false") if name == "mixed" else inputs)
    (folder / "mixed" / "model.npz").write_bytes((folder / "kinds" / "model.npz").read_bytes())
    (folder / "cut" / "model.npz").write_bytes((folder / "houses" / "model.npz").read_bytes()[:500])
    return folder


def _call(folder: Path, *arguments: str) -> Finished:
    return called(predict_dgp.main, "predict_dgp.py", folder, arguments)


@pytest.fixture(scope="module")
def finished(folder: Path) -> dict[str, Finished]:
    return {name: _call(folder, *call, f"--output={name}_predicted.csv") for name, call in PREDICTIONS.items()}


def _predicted(folder: Path, name: str) -> pd.DataFrame:
    return pd.read_csv(folder / f"{name}_predicted.csv")


def _printed(done: Finished, name: str) -> float:
    match = re.search(rf"^{name}: (\S+)$", done.out, re.MULTILINE)
    assert match, done.out
    return float(match[1])


def test_regression(folder: Path, finished: dict[str, Finished]) -> None:
    code, out, err = finished["houses"]
    assert (code, err) == (0, "")
    assert "60 predictions written to houses_predicted.csv" in out
    table, price = _predicted(folder, "houses"), pd.read_csv(folder / "houses.csv")["price"]
    assert list(table) == ["mean", "std", "lower", "upper", "log_density"]
    assert ((table["lower"] < table["mean"]) & (table["mean"] < table["upper"]) & (table["std"] > 0)).all()
    assert table["mean"].between(5e4, 3e5).all()  # the units of the data
    assert _printed(finished["houses"], "rmse") == pytest.approx(
        np.sqrt(np.mean((table["mean"] - price) ** 2)), rel=1e-4
    )
    assert _printed(finished["houses"], "log_likelihood_nats") == pytest.approx(table["log_density"].mean(), rel=1e-4)


def test_order_of_the_rows_is_of_no_consequence(folder: Path, finished: dict[str, Finished]) -> None:
    """A deep GP in float32: 1e-7 of numbers below 3e5, times the slopes of its layers."""
    rows = pd.read_csv(folder / "houses.csv", dtype=str)
    rows[::-1].to_csv(folder / "reversed.csv", index=False)
    done = _call(folder, "--run_dir=houses", "--data=reversed.csv", "--output=reversed_predicted.csv")
    assert done.code == 0, done.err
    np.testing.assert_allclose(_predicted(folder, "reversed")[::-1], _predicted(folder, "houses"), rtol=1e-5)


def test_columns_agree_with_one_another(folder: Path, finished: dict[str, Finished]) -> None:
    """After three steps the mixture is close to one Gaussian, so its moments give the density and the limits."""
    table, price = _predicted(folder, "houses"), pd.read_csv(folder / "houses.csv")["price"]
    normal = stats.norm(table["mean"], table["std"])
    np.testing.assert_allclose(table["log_density"], normal.logpdf(price), atol=0.05)
    np.testing.assert_allclose(table["upper"] - table["lower"], 2 * 1.96 * table["std"], rtol=0.05)


def _divided(folder: Path, name: str, target: str) -> Rows:
    source, table = Source(data=str(folder / f"{name}.csv")), TableSpec(target=(target,))
    return load(source, "supervised", table=table, split=0, seed=0)


def test_log_densities_are_in_the_units_of_the_data(folder: Path, finished: dict[str, Finished]) -> None:
    """Against the mixture of the stored model's Gaussians, each taken to the units of the data, in NumPy."""
    assert finished["houses"].code == 0
    data, table = _divided(folder, "houses", "price"), pd.read_csv(folder / "houses.csv", float_precision="round_trip")
    X = np.column_stack([table["size"], table["colour"] == "blue", table["colour"] == "red"]).astype(float)
    with float_type("float32"):
        model = Predictor.load(folder / "houses").model
        x = ((X - data.train.X.mean(axis=0)) / data.train.X.std(axis=0)).astype(np.float32)
        means, variances = (np.asarray(part, np.float64)[:, :, 0] for part in model.predict_components(x))
        noise = float(model.likelihood.variance.numpy())
    scale = data.train.Y.std()
    density = stats.norm.pdf(table["price"], means * scale + data.train.Y.mean(), np.sqrt(variances + noise) * scale)
    found = _predicted(folder, "houses")["log_density"]
    np.testing.assert_allclose(found, np.log(density.mean(axis=0)), rtol=0, atol=1e-3)  # float32, (y - mean)^2 / 0.02


def test_scores_are_those_of_the_training_script(folder: Path, finished: dict[str, Finished]) -> None:
    """The file's log densities of the test rows have the mean that training reported; one layer needs no draws."""
    test = _divided(folder, "sick", "sick").test
    is_test = pd.read_csv(folder / "sick.csv", float_precision="round_trip")["a"].isin(test.X[:, 0])
    assert is_test.sum() == 6
    reported = json.loads((folder / "sick" / "result.json").read_text())["models"]["gp"]["test"]
    found = _predicted(folder, "sick")["log_density"][is_test].mean()
    assert found == pytest.approx(reported["log_likelihood_nats"], rel=1e-9)


def test_rows_do_not_depend_on_others_or_on_the_target(folder: Path, finished: dict[str, Finished]) -> None:
    """The same rows without the target, with columns in another order and fewer rows."""
    assert finished["new_houses"].code == 0
    assert "rmse" not in finished["new_houses"].out
    new, all_rows = _predicted(folder, "new_houses"), _predicted(folder, "houses")
    assert list(new) == ["mean", "std", "lower", "upper"]
    np.testing.assert_allclose(new, all_rows.iloc[:7, :4], rtol=1e-5)  # float32: sums of other lengths


def test_several_targets_and_missing_values(folder: Path, finished: dict[str, Finished]) -> None:
    assert finished["shop"].code == 0, finished["shop"].err
    table, source = _predicted(folder, "shop"), pd.read_csv(folder / "shop.csv")
    assert list(table) == [
        *(f"{name}_{target}" for target in ("price", "rent") for name in ("mean", "std", "lower", "upper")),
        "log_density",
    ]
    assert not table.isna().any(axis=None)
    assert abs(table["mean_rent"].mean() / source["rent"].mean() - 1) < 0.1
    assert abs(table["mean_price"].mean() / source["price"].str[1:].astype(float).mean() - 1) < 0.1


def test_missing_and_unknown_values_of_new_rows(folder: Path, finished: dict[str, Finished]) -> None:
    """They move the prediction of their own row only, and that is a number."""
    plain = _predicted(folder, "shop_plain")
    for name in ("shop_unknown", "shop_missing", "shop_texts"):
        assert finished[name].code == 0, finished[name].err
        found = _predicted(folder, name)
        np.testing.assert_allclose(found.iloc[1:], plain.iloc[1:], rtol=1e-9)
        assert np.isfinite(found.iloc[0]).all()


def test_what_was_found_out_is_printed_and_kept(folder: Path) -> None:
    printed = (folder / "shop" / "printed.txt").read_text()
    for row in (
        "column +read as +details +becomes",
        r"id +ignored +an id: every value .*nothing",
        r"size +number +\d+ missing +size, size=missing",
        r"city +category +2 levels: Oslo, Rome; 1 .*city=Oslo ... city=\(rare\) \(3.*",
        r"sold +date +as %d\.%m\.%Y.* sold.day, sold.weekday",
        r"price +number .* +target, regression",
    ):
        assert re.search(rf"^{row}$", printed, re.MULTILINE), printed
    kept = json.loads((folder / "shop" / "columns.json").read_text())
    assert kept == {**json.loads((folder / "shop" / "inputs.json").read_text())["schema"], "fills": kept["fills"]}
    assert [entry["column"]["kind"] for entry in kept["columns"]] == ["ignored", "number", "category", "date"]


@pytest.mark.parametrize(("name", "classes"), [("kinds", ["ape", "bee", "cow"]), ("sick", ["no", "yes"])])
def test_classification(name: str, classes: list[str], folder: Path, finished: dict[str, Finished]) -> None:
    assert (finished[name].code, finished[name].err) == (0, "")
    table, source = _predicted(folder, name), pd.read_csv(folder / f"{name}.csv")
    columns = [f"probability_{c}" for c in classes]
    assert list(table) == ["label", *columns, "log_density"]
    probabilities = table[columns].to_numpy()
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0, atol=1e-3)  # robust-max integrates by quadrature
    assert (table["label"] == np.array(classes)[probabilities.argmax(axis=1)]).all()
    target = source.iloc[:, -1]
    of_target = probabilities[np.arange(60), target.map(classes.index)]
    np.testing.assert_allclose(table["log_density"], np.log(of_target), atol=1e-3)
    assert _printed(finished[name], "accuracy") == pytest.approx((table["label"] == target).mean(), rel=1e-4)


def test_a_path_may_begin_with_the_home_folder(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    done = _call(folder, "--run_dir=kinds", "--data=kinds.csv", "--output=~/kinds.csv")
    assert done.code == 0, done.err
    assert (tmp_path / "kinds.csv").is_file()
    assert not (folder / "~").exists()


@pytest.mark.parametrize("number", range(len(ERRORS)), ids=[message for _, message in ERRORS])
def test_errors_are_one_line(number: int, folder: Path) -> None:
    code, _, err = _call(folder, *ERRORS[number][0])
    assert code == 2
    assert re.fullmatch(rf"predict_dgp\.py: error: .*{ERRORS[number][1]}.*\n", err), err
