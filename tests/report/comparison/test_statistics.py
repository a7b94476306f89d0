from __future__ import annotations

import json
import math
import random
import statistics
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import scipy.stats

from helpers.comparison import DATA, make_data, make_entries, make_entry
from rectifier.evaluation.metrics.catalogue import COMPARED_METRICS
from rectifier.evaluation.rows import flatten, nest
from rectifier.report.comparison import BINS, PREFERRED, RULES, Entry, compare_entries

DATA["mixed"]["counts"]["test"]["a longer label name 3"]["class07"] = 0


@pytest.fixture(params=list(DATA))
def entries(request: pytest.FixtureRequest) -> list[Entry]:
    return make_entries(request.param)


def compared(entries: list[Entry], baseline: str | None = None) -> dict[str, Any]:
    return compare_entries(entries, baseline).as_dict()


def changed(entry: Entry, *path: str, to: Any) -> Entry:
    """Return the run with one entry of its metrics.json changed."""
    metrics = nest(entry.rows)
    found = metrics
    for key in path[:-1]:
        found = found[key]
    found[path[-1]] = to
    return replace(entry, rows=flatten(metrics))


# The slow twin: loops, and scipy's own interval.


def twin(values: list[float]) -> tuple[float | None, float | None]:
    if len(values) < 2:
        return (values[0], None) if values else (None, None)
    if max(values) == min(values):
        return values[0], 0.0
    mean = statistics.mean(values)
    _, high = scipy.stats.t.interval(0.95, len(values) - 1, loc=mean, scale=scipy.stats.sem(values))
    return mean, high - mean


def agree(estimate: Any, values: list[float | None]) -> None:
    mean, half = twin([value for value in values if value is not None])
    assert estimate["mean"] == pytest.approx(mean, abs=1e-10)
    assert estimate["half_width"] == pytest.approx(half, abs=1e-9)


def check_result(result: Any, entries: list[Entry], value: Callable[[Entry], float | None]) -> None:
    """Compare a result with what the runs themselves say, group by group and seed by seed."""
    runs: dict[str, dict[int, float | None]] = {}
    for entry in entries:
        name = {0.5: "crl (eta 0.5)", 10: "crl (eta 10)"}.get(
            entry.settings.get("method.eta"), entry.settings["method"]
        )
        runs.setdefault(name, {})[entry.seed] = value(entry)
    assert set(result["groups"]) == set(runs)
    assert set(result["differences"]) == set(runs) - {"ce"}
    for name, values in runs.items():
        assert result["groups"][name]["values"] == {str(seed): found for seed, found in values.items()}
        agree(result["groups"][name], list(values.values()))
        if name != "ce":
            pairs = [(values[s], runs["ce"][s]) for s in values if values[s] is not None and runs["ce"][s] is not None]
            differences = [a - b for a, b in pairs]  # type: ignore[operator]
            agree(result["differences"][name], differences)
            mean, half = twin(differences)
            excludes = mean is not None and half is not None and not mean - half <= 0 <= mean + half
            assert result["differences"][name]["excludes_zero"] == excludes


nested: dict[int, tuple[Any, Any]] = {}  # with the rows, so that no other table gets their id


def at(*path: str) -> Callable[[Entry], Any]:
    def value(entry: Entry) -> Any:
        if id(entry.rows) not in nested:
            nested[id(entry.rows)] = entry.rows, nest(entry.rows)
        found = nested[id(entry.rows)][1]
        for key in path:
            found = found[key]
        return found

    return value


def test_metrics_agree_with_the_slow_twin(entries: list[Entry]) -> None:
    found = compared(entries)
    for rule in RULES:
        result = found["rules"][rule]
        for metric in COMPARED_METRICS[:-1]:
            check_result(result["test"][metric], entries, at("test", "rules", rule, metric))
        metric = "class_balanced_accuracy"
        check_result(result["validation"][metric], entries, at("validation", "rules", rule, metric))


def test_the_preferred_rule_is_each_runs_own(entries: list[Entry]) -> None:
    runs = [changed(entry, "preferred_rule", to=RULES[number % len(RULES)]) for number, entry in enumerate(entries)]
    found = compared(runs)["rules"][PREFERRED]
    for metric in COMPARED_METRICS[:-1]:

        def own(entry: Entry, metric: str = metric) -> float | None:
            return at("test", "rules", at("preferred_rule")(entry), metric)(entry)

        check_result(found["test"][metric], runs, own)


def slow_rarest(entry: Entry, label: str) -> str:
    train, test = entry.data["counts"]["train"][label], entry.data["counts"]["test"][label]
    best = None
    for member in train:
        if train[member] >= 1 and test[member] >= 1 and (best is None or train[member] < train[best]):
            best = member
    assert best is not None
    return best


def test_labels_and_classes_agree_with_the_slow_twin(entries: list[Entry]) -> None:
    found = compared(entries)["rules"]["tuned"]
    for label in list(found["labels"])[:9]:
        result, path = found["labels"][label], ("test", "rules", "tuned", "labels", label)
        check_result(result["class_balanced_accuracy"], entries, at(*path, "class_balanced_accuracy"))
        check_result(result["rarest"], entries, at(*path, "sensitivity", slow_rarest(entries[0], label)))
        for name in list(result["classes"])[:9]:
            check_result(result["classes"][name], entries, at(*path, "sensitivity", name))


def test_rarest_is_the_mean_over_labels(entries: list[Entry]) -> None:
    def slow(entry: Entry) -> float | None:
        labels = at("test", "rules", "prior", "labels")(entry)
        values = [labels[name]["sensitivity"][slow_rarest(entry, name)] for name in labels]
        known = [value for value in values if value is not None]
        return sum(known) / len(known) if known else None

    result = compared(entries)["rules"]["prior"]["test"]["rarest"]
    for group, estimate in result["groups"].items():
        own = [e for e in entries if group.startswith(e.settings["method"])]
        own = [e for e in own if str(e.settings.get("method.eta", "")) in group and e.settings["method"] in group]
        assert list(estimate["values"].values()) == pytest.approx([slow(e) for e in own])


def test_bins_and_halves_are_means_of_their_members() -> None:
    entries = make_entries("forty binary")
    found = compared(entries)["rules"]["argmax"]
    least, most = found["halves"]
    assert least["members"] == [f"Wearing_Attribute_{k:02d}" for k in range(20)]
    assert (least["low"], most["high"]) == (1.0, 40.0)
    for part in [least, most, *found["label_bins"]]:
        gains = [
            found["labels"][name]["class_balanced_accuracy"]["differences"]["crl (eta 10)"]["mean"]
            for name in part["members"]
        ]
        known = [gain for gain in gains if gain is not None]
        assert part["differences"]["crl (eta 10)"]["mean"] == pytest.approx(sum(known) / len(known))
    assert found["class_bins"][0]["members"][0] == "Wearing_Attribute_39: yes"
    assert len(found["class_bins"]) == BINS
    assert sum(len(part["members"]) for part in found["class_bins"]) == 80


# Identities.


def test_the_result_is_json(entries: list[Entry]) -> None:
    found = compared(entries)
    assert json.loads(json.dumps(found, allow_nan=False)) == found


def test_the_order_of_the_runs_changes_nothing(entries: list[Entry]) -> None:
    shuffled = list(entries)
    random.Random(0).shuffle(shuffled)
    assert json.dumps(compared(shuffled)) == json.dumps(compared(entries))


def test_a_group_against_itself_differs_by_zero() -> None:
    own = [make_entry(DATA["digits"], "ce", seed) for seed in range(4)]
    copies = [replace(e, folder=f"{e.folder}b", settings={**e.settings, "method": "copy"}) for e in own]
    for found in compared(own + copies)["rules"].values():
        difference = found["test"]["class_balanced_accuracy"]["differences"]["copy"]
        assert (difference["mean"], difference["half_width"], difference["excludes_zero"]) == (0, 0, False)


def test_swapping_the_baseline_turns_the_sign() -> None:
    entries = make_entries("digits")
    there = compared(entries)["rules"]["argmax"]["test"]["accuracy"]["differences"]["over-sampling"]
    swapped = compared(entries, baseline="over-sampling")
    back = swapped["rules"]["argmax"]["test"]["accuracy"]["differences"]["ce"]
    assert swapped["groups"][0]["name"] == swapped["baseline"] == "over-sampling"
    assert there["mean"] == pytest.approx(-back["mean"])  # type: ignore[operator]
    assert there["half_width"] == pytest.approx(back["half_width"])


def test_one_seed_gives_no_interval() -> None:
    found = compared(make_entries("digits", seeds=1))["rules"]["argmax"]["test"]["class_balanced_accuracy"]
    assert all(one["half_width"] is None and one["mean"] is not None for one in found["groups"].values())
    assert not any(one["excludes_zero"] for one in found["differences"].values())


def test_differences_use_common_seeds_alone() -> None:
    data = DATA["digits"]
    entries = [make_entry(data, "ce", seed) for seed in (0, 1, 2)] + [
        make_entry(data, "crl", seed) for seed in (1, 2, 3)
    ]
    found = compared(entries)
    assert found["seeds"] == [0, 1, 2, 3]
    assert found["rules"]["argmax"]["test"]["accuracy"]["differences"]["crl"]["seeds"] == [1, 2]
    apart = [make_entry(data, "ce", 0), make_entry(data, "crl", 1)]
    difference = compared(apart)["rules"]["argmax"]["test"]["accuracy"]["differences"]["crl"]
    assert (difference["mean"], difference["half_width"], difference["seeds"]) == (None, None, [])


def test_rounding_is_no_difference() -> None:
    entries = [
        changed(make_entry(DATA["digits"], method, seed), "test", "rules", "argmax", "accuracy", to=value)
        for method, value in (("ce", 0.3), ("crl", 0.1 + 0.2))
        for seed in (0, 1)
    ]
    difference = compared(entries)["rules"]["argmax"]["test"]["accuracy"]["differences"]["crl"]
    assert (difference["mean"], difference["excludes_zero"]) == (0, False)


# Labels.


def test_facts_of_a_label() -> None:
    train = {"kind": {"cat": 8, "dog": 0, "eel": 2, "fox": 2, "gnu": 1}, "size": {"s": 4, "l": 4}}
    test = {"kind": {"cat": 5, "dog": 5, "eel": 5, "fox": 5, "gnu": 0}, "size": {"s": 4, "l": 4}}
    kind, size = compared([make_entry(make_data(train, test), "ce", 0)])["labels"]
    assert kind["rarest"] == "eel"  # dog was never trained, gnu never tested, and of two equal the first
    assert (kind["ratio"], kind["ratio_nonempty"], kind["omega"]) == (None, 8.0, 0.675)
    assert (size["name"], size["ratio"], size["omega"], size["rarest"]) == ("size", 1.0, 0.0, "s")


def test_a_label_that_no_sample_has() -> None:
    data = make_data({"kind": {"cat": 0, "dog": 0}, "size": {"s": 4, "l": 2}})
    found = compared([make_entry(data, "ce", 0)])
    kind = found["labels"][0]
    assert (kind["name"], kind["ratio"], kind["ratio_nonempty"], kind["rarest"]) == ("kind", None, None, None)
    assert found["rules"]["argmax"]["labels"]["kind"]["rarest"] is None


def test_validation_may_be_absent() -> None:
    entries = [changed(e, "validation", to=None) for e in make_entries("digits")]
    found = compared(entries)["rules"]["argmax"]["validation"]["class_balanced_accuracy"]
    assert all(estimate["mean"] is None for estimate in found["groups"].values())


# Groups and their names.


def names(*settings: dict[str, Any]) -> list[str]:
    data = DATA["digits"]
    entries = [replace(make_entry(data, "ce", 0), settings=one, folder=str(k)) for k, one in enumerate(settings)]
    return [group["name"] for group in compared(entries)["groups"]]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ([{"method": "crl", "method.eta": 1, "epochs": 9}, {"method": "ce", "epochs": 9}], ["ce", "crl (eta 1)"]),
        (
            [{"method": "crl", "method.eta": eta} for eta in (10, 0.5, 2)] + [{"method": "ce"}],
            ["ce", "crl (eta 0.5)", "crl (eta 2)", "crl (eta 10)"],
        ),
        (
            [{"method": "crl", "network": "mlp"}, {"method": "ce", "network": "deepid2"}],
            ["ce (network deepid2)", "crl (network mlp)"],
        ),
        ([{"method": "crl"}, {"method": "crl", "method.rho": 0.3}], ["crl", "crl (rho 0.3)"]),
        (
            [{"method": "a", "size": [1, 2], "flag": True}, {"method": "a", "size": [1, 3], "flag": False}],
            ["a (flag false, size [1, 3])", "a (flag true, size [1, 2])"],
        ),
        ([{"method": "a", "x": 1}, {"method": "a", "x": "1"}], ["a (x 1)", "a (x 1) #2"]),
    ],
)
def test_names_tell_groups_apart(settings: list[dict[str, Any]], expected: list[str]) -> None:
    assert names(*settings) == expected


def test_what_the_recipe_chose_names_no_group() -> None:
    settings = [{"method": "ce", "select": "prior", "lr": 0.1}, {"method": "la", "select": "argmax", "lr": 0.2}]
    entries = [
        replace(make_entry(DATA["digits"], "ce", seed), settings=one, seed=seed, folder=f"{one['method']}{seed}")
        for one in settings
        for seed in (0, 1)
    ]
    chosen = [replace(entry, chosen=frozenset(["select"])) for entry in entries]
    found = [[group["name"] for group in compared(each)["groups"]] for each in (entries, chosen)]
    assert found == [["ce (lr 0.1, select prior)", "la (lr 0.2, select argmax)"], ["ce (lr 0.1)", "la (lr 0.2)"]]
    assert compared(chosen)["groups"][0]["settings"] == settings[0]


def test_the_baseline_without_a_single_ce_is_the_first_group() -> None:
    settings = [{"method": "ce", "network": network} for network in ("resnet32", "mlp")]
    assert names(*settings)[0] == "ce (network mlp)"
    assert names({"method": "over-sampling"}, {"method": "crl"})[0] == "crl"


def test_groups_list_their_runs() -> None:
    group = compared(make_entries("digits"))["groups"][1]
    assert group["seeds"] == [0, 1, 2]
    assert group["folders"] == {str(seed): f"runs/crl-1-{seed}" for seed in range(3)}
    assert group["settings"]["method.eta"] == 0.5


# Refusals.


def test_no_runs() -> None:
    with pytest.raises(ValueError, match="Expected runs to be a list of at least one run, but got an empty one"):
        compared([])


def test_a_run_without_test_metrics_is_named() -> None:
    entry = make_entry(DATA["digits"], "ce", 0)
    for rows in (flatten({}), changed(entry, "test", to=None).rows):
        with pytest.raises(ValueError, match=r"runs/ce-0-0 has no test metrics\. Only finished runs can be compared"):
            compared([replace(entry, rows=rows)])


def test_a_seed_twice_names_both_folders() -> None:
    entry = make_entry(DATA["digits"], "ce", 4)
    with pytest.raises(ValueError, match="other and runs/ce-0-4 have the same settings and the same seed 4"):
        compared([entry, replace(entry, folder="other")])


def test_a_wrong_baseline_is_answered_with_the_nearest() -> None:
    with pytest.raises(ValueError, match=r"Expected baseline to be one of 'ce', .*Did you mean 'crl \(eta 0.5\)'"):
        compared(make_entries("digits"), baseline="crl (eta 0.6)")


CHANGES: dict[str, tuple[dict[str, Any], str]] = {
    "label space": (
        {"labels": [{"name": "digit", "classes": [*map(str, range(9)), "ten"]}]},
        'label space differs: "9" in a, "ten" in b',
    ),
    "more labels": (
        {"labels": [*DATA["digits"]["labels"], {"name": "x", "classes": ["y", "n"]}]},
        'label space differs: "1 entry" in a, "2 entries" in b',
    ),
    "fingerprint": ({"fingerprint": "f1"}, 'fingerprint differs: "f0" in a, "f1" in b'),
    "split": ({"fingerprint": "f1", "split_hash": "s1"}, 'split differs: "s0" in a, "s1" in b'),
    "normalisation": ({"normalisation": {"mean": [0.5], "std": [0.5]}}, "normalisation differs: 0.25 in a, 0.5 in b"),
}


@pytest.mark.parametrize("network", ["mlp", "resnet32"])
def test_images_may_be_prepared_differently(network: str) -> None:
    """Another size, or a network with a normalisation of its own, is a setting, and not other data."""
    change = {"shape": [1600], "normalisation": {"mean": [0.5], "std": [0.5]}}
    one, other = make_entry(DATA["digits"], "ce", 0), make_entry({**DATA["digits"], **change}, "crl", 0)
    other = replace(other, settings={**other.settings, "network": network})
    assert len(compared([one, other])["groups"]) == 2


@pytest.mark.parametrize(("change", "match"), CHANGES.values(), ids=CHANGES.keys())
@pytest.mark.parametrize("resplit", [False, True])
def test_unlike_data_is_refused(change: dict[str, Any], match: str, resplit: bool) -> None:
    one = replace(make_entry(DATA["digits"], "ce", 0), folder="a", resplit=resplit)
    other = replace(make_entry({**DATA["digits"], **change}, "crl", 0), folder="b", resplit=resplit)
    with pytest.raises(ValueError, match=rf"Only runs of the same data can be compared\. The {match}"):
        compared([one, other])


def redrawn(seed: int, method: str, resplit: bool = True) -> Entry:
    data = make_data({"kind": {"cat": 9, "dog": 3 + seed, "eel": 4}})
    data |= {"fingerprint": f"f{seed}", "split_hash": f"s{seed}", "normalisation": {"mean": [seed]}}
    return replace(make_entry(data, method, seed), resplit=resplit)


def test_splits_redrawn_need_to_agree_within_a_seed() -> None:
    entries = [redrawn(seed, method) for seed in (0, 1) for method in ("ce", "crl")]
    found = compared(entries)
    assert found["resplit"]
    assert found["labels"][0]["counts"] == {"cat": 9, "dog": 3.5, "eel": 4}
    with pytest.raises(ValueError, match="The split differs"):
        compared([*entries[:-1], replace(entries[-1], resplit=False)])
    wrong = replace(entries[-1], data=entries[0].data)
    with pytest.raises(ValueError, match=r"The split differs: .* in runs/ce-0-1, .* in runs/crl-0-1"):
        compared([*entries[:-1], wrong])


def test_nothing_is_changed_and_nothing_is_nan(entries: list[Entry]) -> None:
    before = [entry.rows.copy() for entry in entries]
    compared(entries)
    assert all(entry.rows.equals(rows) for entry, rows in zip(entries, before, strict=True))
    entries[0] = changed(entries[0], "test", "rules", "argmax", "accuracy", to=math.nan)
    assert compared(entries)["rules"]["argmax"]["test"]["accuracy"]["groups"]["ce"]["values"]["0"] is None


def test_the_rows_of_all_runs_name_run_group_and_seed() -> None:
    entries = make_entries("digits", seeds=2)
    rows = compare_entries(entries).rows
    assert list(rows.columns) == ["part", "rule", "label", "class", "metric", "value", "run", "group", "seed"]
    assert set(rows["run"]) == {entry.folder for entry in entries}
    own = rows[(rows["run"] == "runs/over-sampling-0-1") & (rows["rule"] != PREFERRED)]
    assert set(zip(own["group"], own["seed"], strict=True)) == {("over-sampling", 1)}
    assert (
        own[list(entries[0].rows.columns)]
        .reset_index(drop=True)
        .equals(next(entry for entry in entries if entry.folder == "runs/over-sampling-0-1").rows)
    )
