"""Distances of a run's conditions, against what torch's own batch statistics say."""

import json

import numpy as np
import pytest
from imagined import random_statistics, with_unreached
from made_up import make_run, make_shift
from networks import one_giant_batch
from runs import OPTIONS, run_in, workplace

from covshift.bench.measure import derive, measure_shift, read_shift
from covshift.corruptions import corrupt
from covshift.data import Condition
from covshift.models import open_model
from covshift.report.build import report
from covshift.report.criterion import criterion
from covshift.report.gather import gather
from covshift.report.parts import Gap
from covshift.report.sections import bounds as theory
from covshift.report.sections import distances
from covshift.support.errors import CovshiftError

SMALL = {"corruptions": "fog,snow,spatter", "severities": "1,3,5", "methods": "none,partial,full,reverse"}


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """A run of a small network, and its folder."""
    folder = workplace(tmp_path_factory.mktemp("measure"))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.syspath_prepend(str(folder))
        run_in(folder, {**OPTIONS, "corruptions": "fog,saturate", "severities": "1,5", "methods": "none,full"}, "run")
        result = gather([folder / "run"]).results[0]
        yield folder, result, measure_shift(result, images=50)


def test_distances_are_those_of_one_giant_batch(measured):
    folder, _, shift = measured
    images = np.load(folder / "set.npz")["images"]
    model = open_model("py:nets:net", size=16)
    source = {path: (m.running_mean, m.running_var) for path, m in model.module.named_modules() if hasattr(m, "eps")}
    foggy = corrupt(images, "fog", 5, indices=list(range(len(images))))
    _, seen = one_giant_batch(model.module, model.preprocess.tensor(foggy))
    found = next(each for each in shift.conditions if str(each.condition) == "fog/5")
    for place, path in enumerate(shift.layers):
        (mean_s, var_s), (mean_t, var_t) = source[path], seen[path]
        squares = ((mean_s - mean_t) ** 2 + (var_s.sqrt() - var_t.sqrt()) ** 2) / var_s
        assert found.distances["normalised Wasserstein"][place] == pytest.approx(squares.sum().sqrt().item(), rel=1e-3)
    assert shift.images == 50
    assert len(shift.conditions) == 5


def test_layers_that_no_image_reaches_are_left_out():
    targets = {Condition("fog", level): with_unreached(random_statistics(level)) for level in (1, 3, 5)}
    plain = {condition: random_statistics(condition.severity) for condition in targets}
    shift = derive(with_unreached(random_statistics(0)), targets, "a digest")
    assert shift.layers == ["bn0", "bn1"]
    assert shift.channels == [5, 9, 4]
    assert shift.conditions == derive(random_statistics(0), plain, "a digest").conditions


def test_what_was_measured_is_kept(measured):
    _, result, shift = measured
    assert read_shift(result) == shift
    kept = sorted((result.folder / "statistics").iterdir())
    assert len(kept) == 5
    kept[0].unlink()
    before = kept[1].stat().st_mtime_ns
    assert measure_shift(result, images=1000) == shift  # of 50, which are all there are
    assert not kept[0].exists()  # it was not measured again
    (result.folder / "shift.json").unlink()
    assert measure_shift(result, images=50) == shift  # goes on where it was
    assert kept[0].exists()
    assert kept[1].stat().st_mtime_ns == before


def test_on_other_images_it_is_measured_again(measured):
    _, result, shift = measured
    assert measure_shift(result, images=40).images == 40
    assert measure_shift(result, images=50) == shift


def test_other_weights_are_refused(measured):
    _, result, _ = measured
    other = gather([result.folder]).results[0]
    object.__setattr__(other, "run", other.run.model_copy(update={"model_digest": "another"}))
    with pytest.raises(CovshiftError, match="other weights"):
        read_shift(other)
    with pytest.raises(CovshiftError, match="other weights"):
        measure_shift(other, images=50)


def test_statistics_of_other_weights_are_not_gone_on_with(measured):
    _, result, shift = measured
    here = result.folder / "statistics"
    for file in list(here.iterdir()):
        file.rename(here / f"0{file.name}")  # as if the run had been another one
    (result.folder / "shift.json").unlink()
    before = len(list(here.iterdir()))
    assert measure_shift(result, images=50) == shift
    assert len(list(here.iterdir())) == before + 5


def test_a_model_without_statistics_has_nothing_to_measure(measured):
    folder, _, _ = measured
    settings = {**OPTIONS, "model": "py:nets:plain", "corruptions": "fog", "severities": "1", "methods": "none"}
    run_in(folder, settings, "plain")
    assert measure_shift(gather([folder / "plain"]).results[0], images=50) is None


@pytest.mark.parametrize(
    "change",
    [
        lambda held: held.pop("layers"),
        lambda held: held["layers"].pop(),
        lambda held: held["conditions"][0]["distances"].pop("Jeffrey"),
        lambda held: held["conditions"][0]["distances"].update({"Wasserstein": [float("nan")] * 6}),
        lambda held: held.update(conditions=[]),
        lambda held: held["theory"][0].update(lower=float("nan")),
    ],
)
def test_a_broken_measurement_is_left_out_and_said(tmp_path, monkeypatch, change):
    monkeypatch.setattr("covshift.report.page.vega", lambda: "")
    folder = make_run(tmp_path / "a", **{**SMALL, "methods": "none"})
    make_shift(folder)
    held = json.loads((folder / "shift.json").read_text())
    change(held)
    (folder / "shift.json").write_text(json.dumps(held))
    with pytest.raises(CovshiftError, match=r"^[^\n]*measure again$"):
        read_shift(gather([folder]).results[0])
    notes = []
    page = report([folder], tmp_path / "out", images=False, files=False, notify=notes.append)
    assert [note.endswith("delete it and measure again") for note in notes] == [True]
    assert "is not a valid measurement" in page.read_text()


def test_the_heat_map_begins_with_the_clean_images(tmp_path):
    folder = make_run(tmp_path / "a", **SMALL)
    make_shift(folder)
    result = gather([folder]).results[0]
    rows = distances.heat_map(result, read_shift(result)).rows
    seen = list(dict.fromkeys(row["condition"].partition("/")[0] for row in rows))
    assert seen == ["clean", "snow", "fog", "spatter"]


def test_predictions_are_those_of_a_straight_line(tmp_path):
    folder = make_run(tmp_path / "a", **SMALL)
    make_shift(folder)
    result = gather([folder]).results[0]
    shift = read_shift(result)
    (sheet,) = distances.prediction(result, shift)
    line = next(line for line in sheet.lines if line[0].text.startswith("(i)") and line[1].text == "weather")
    averages = {str(each.condition): each.average() for each in shift.conditions}
    rows = [json.loads(text) for text in (folder / "rows.jsonl").read_text().splitlines()]
    errors = {f"{r['corruption']}/{r['severity']}": r["top1_errors"] / 10 for r in rows if r["method"] == "none"}
    x, y = (np.array([of[f"spatter/{s}"] for s in (1, 3, 5)]) for of in (averages, errors))
    slope = ((x - x.mean()) * (y - y.mean())).sum() / ((x - x.mean()) ** 2).sum()
    tested = [f"{name}/{s}" for name in ("fog", "snow") for s in (1, 3, 5)]
    guessed = np.mean([y.mean() + slope * (averages[each] - x.mean()) for each in tested])
    assert line[-1].text == "11.21"  # the paper's
    assert float(line[3].text) == pytest.approx(guessed, abs=0.02)
    assert float(line[2].text) == pytest.approx(np.mean([errors[each] for each in tested]), abs=0.01)
    assert float(line[8].text) == pytest.approx(slope, abs=0.02)


def test_theory_is_drawn_over_what_was_measured(tmp_path):
    folder = make_run(tmp_path / "a", **{**SMALL, "grid": True})
    make_shift(folder)
    result = gather([folder]).results[0]
    (figure,) = theory.measured(result, read_shift(result), criterion([result]))
    assert len(figure.rows) == 90
    residual = np.array([row["error"] - row["theory"] for row in figure.rows])
    assert abs(residual.mean()) < 1e-3  # that of a regression
    assert len(figure.spec["layer"]) == 2


@pytest.mark.parametrize(
    ("settings", "figures"),
    [
        ({"grid": True, "order": "label"}, 0),
        ({"methods": "none,batch:n=8,N=16,batch:n=64,N=16"}, 0),
        ({"methods": "none,batch:n=8,N=16,batch:n=64,N=4"}, 1),
    ],
)
def test_theory_is_of_shuffled_images_and_several_priors(tmp_path, settings, figures):
    folder = make_run(tmp_path / "a", **{**SMALL, **settings})
    make_shift(folder)
    (result,) = gather([folder]).results
    shift = read_shift(result)
    assert len(theory.measured(result, shift, criterion([result]))) == figures
    turned = [each.model_copy(update={"lower": 2 - each.lower}) for each in shift.theory]
    for figure in theory.measured(result, shift.model_copy(update={"theory": turned}), criterion([result])):
        assert "no lines" in figure.caption
        assert len(figure.spec["layer"]) == 1


def test_what_has_not_moved_has_no_share(tmp_path):
    folder = make_run(tmp_path / "a", corruptions="fog", severities="3")
    make_shift(folder)
    held = json.loads((folder / "shift.json").read_text())
    for each in held["conditions"]:
        each["distances"] = {name: [0.0] * 6 for name in each["distances"]}
    (folder / "shift.json").write_text(json.dumps(held))
    (result,) = gather([folder]).results
    assert {row["share"] for row in distances.layers(result, read_shift(result)).rows} == {0}
    (figure,) = distances.scatter(result, read_shift(result))
    assert figure.caption == ""
    assert len(figure.spec["spec"]["layer"]) == 1  # Vega complains about lines without a point


def test_conditions_that_came_later_are_said_to_lack_distances(tmp_path):
    folder = make_run(tmp_path / "a", **SMALL)
    make_shift(folder)
    (result,) = gather([folder]).results
    shift = read_shift(result)
    fewer = shift.model_copy(update={"conditions": shift.conditions[:4]})

    def gaps(held):
        return [part for part in distances.section([result], {"a": held}, "again").parts if isinstance(part, Gap)]

    assert gaps(shift) == []
    told = Gap("a: distances in all conditions", "distances were measured in 4 of 10 conditions", "again")
    assert told in gaps(fewer)


def test_the_command_that_measures_is_about_all_runs(tmp_path, monkeypatch):
    monkeypatch.setattr("covshift.report.page.vega", lambda: "")
    runs = [make_run(tmp_path / name, **SMALL) for name in ("a", "b")]
    page = report(runs, tmp_path / "out", images=False, files=False).read_text()
    assert f"<code>covshift report {runs[0]} {runs[1]} --out {tmp_path / 'out'} --measure 1000</code>" in page
