"""Charts, tables and files from made-up runs, against numbers that are counted by hand."""

import csv
import io
import json
import math
import re
import shlex
from pathlib import Path

import pytest
from made_up import make_run, make_shift

from covshift.bench.measure import read_shift
from covshift.bench.methods import GRID_PRIORS
from covshift.bench.results.metrics import ALEXNET, rate
from covshift.bench.results.store import Store
from covshift.bench.run import from_held
from covshift.bench.settings import Settings
from covshift.corruptions import names
from covshift.report.build import report, sections, written_readme
from covshift.report.criterion import criterion, uneven
from covshift.report.figure import COLOURS, SHAPES, WIDTH, Figure
from covshift.report.gather import gather
from covshift.report.naming import family, file_name, norm, pretraining, without_norm
from covshift.report.parts import Gap
from covshift.report.publication import svg
from covshift.report.sections import architectures, batches, natural, overview
from covshift.report.sections import by_corruption as corruptions
from covshift.report.sections import comparison as compare
from covshift.support.errors import CovshiftError
from covshift.support.tables import Table

SMALL = {"corruptions": "fog,snow,spatter", "severities": "1,3"}


def results(tmp_path, *names, **settings):
    return gather([make_run(tmp_path / name, **{**SMALL, **settings}) for name in names]).results


def parts(section, kind):
    return {getattr(part, "name", part.title): part for part in section.parts if isinstance(part, kind)}


def test_the_grid_is_that_of_the_rows(tmp_path):
    (result,) = results(tmp_path, "a", grid=True)
    found = batches.n_by_prior(result, criterion([result]))
    by_hand = {}
    for row in map(json.loads, (tmp_path / "a" / "rows.jsonl").read_text().splitlines()):
        if row["method"] == "batch:n=8,N=16" and row["corruption"] in ("fog", "snow"):
            by_hand[row["cell"]] = row["top1_errors"] / row["images"]
    line = next(line for line in found.lines if line[0].text == "n = 8")
    assert line[found.columns.index("N = 16")].text == f"{100 * sum(by_hand.values()) / 4:.1f}"
    assert any(cell.strong for cell in line)


def test_where_one_prior_was_run_none_is_the_best(tmp_path):
    (result,) = results(tmp_path, "a", methods="none,batch:n=8,N=16,batch:n=64,N=16")
    found = batches.n_by_prior(result, criterion([result]))
    assert not any(cell.strong for line in found.lines for cell in line)
    assert not batches.best([result], criterion([result]))


def test_the_best_prior_is_chosen_on_the_holdout_corruptions(tmp_path):
    (result,) = results(tmp_path, "a", grid=True)
    spatter = {
        (row.n, row.prior): row.top1_errors for row in result.rows if row.cell.startswith("spatter/") and row.n == 64
    }
    both = dict.fromkeys(spatter, 0)
    for row in result.rows:
        if row.corruption == "spatter" and (row.n, row.prior) in both and row.method.startswith("batch"):
            both[row.n, row.prior] += row.top1_errors
    least = min(both.values())
    assert both[64, batches.chosen(result, criterion([result]))[64]] == least


def test_the_best_prior_of_half_a_grid_is_one_that_was_run_on_the_holdout_corruptions(tmp_path):
    folder = make_run(tmp_path / "a", **SMALL, grid=True)
    lines = (folder / "rows.jsonl").read_text().splitlines(keepends=True)
    kept = [line for line in lines if not ('"spatter/3/' in line and any(f'N={N}"' in line for N in (1, 2, 256)))]
    (folder / "rows.jsonl").write_text("".join(kept))
    (result,) = gather([folder]).results
    assert not {1, 2, 256} & set(batches.chosen(result, criterion([result])).values())


def test_priors_for_imagenet_are_chosen_by_corruption_errors(tmp_path):
    (result,) = gather([make_run(tmp_path / "a", imagenet=True, grid=True, corruptions="holdout,fog")]).results
    by_hand = dict.fromkeys(GRID_PRIORS, 0.0)
    for row in result.rows:
        if row.corruption in names("holdout") and row.n == 2 and row.method.startswith("batch"):
            by_hand[row.prior] += row.top1_errors / ALEXNET[row.corruption]
    assert batches.chosen(result, criterion([result]))[2] == min(by_hand, key=by_hand.get)


def test_natural_images_leave_the_others_their_mce(tmp_path):
    runs = [make_run(tmp_path / "a", imagenet=True), make_run(tmp_path / "r", imagenet=True, corruptions="none")]
    assert criterion(gather(runs).results).name == "mCE"


def test_an_infinite_prior_leaves_the_charts_alone(tmp_path):
    methods = "none,batch:n=8,N=inf,batch:n=32,N=inf,batch:n=8,N=4,batch:n=32,N=4"
    (result,) = results(tmp_path, "a", methods=methods)
    assert set(result.batches) == {(8, 4.0), (32, 4.0)}
    assert all("Infinity" not in json.dumps(figure.spec) for figure in parts_of([result]))
    assert "batch:n=8,N=inf" in [line[1].text for line in batches.all_methods([result])[0].lines]


def test_what_is_missing_is_said_with_a_command(tmp_path):
    found = results(tmp_path, "plain")
    gaps = [part for section in sections(found) for part in section.parts if isinstance(part, Gap)]
    assert {"Mean error by batch size", "Mixed corruptions", "Natural shifts"} <= {gap.title for gap in gaps}
    (models,) = [gap for gap in gaps if gap.title.startswith("Models side by side: ")]
    assert models.title.endswith("batch norm, GroupNorm and Fixup, large-scale pre-training, SimCLR")
    assert len({gap.command for gap in gaps}) <= 6  # one short list
    assert all(gap.command.startswith("covshift ") for gap in gaps)


def test_what_some_runs_lack_is_said_of_them(tmp_path):
    plain = make_run(tmp_path / "plain", **SMALL)
    whole = make_run(tmp_path / "whole", **SMALL, grid=True, mixed=True)
    make_shift(whole)
    found = gather([plain, whole]).results
    gaps = {
        part.title: part
        for section in sections(found, {"whole": read_shift(found[1])}, "covshift report all of them")
        for part in section.parts
        if isinstance(part, Gap)
    }
    for title, more in {
        "Mean error by batch size": f"bench run --out {plain} --extend --grid",
        "Mixed corruptions": f"bench run --out {plain} --extend --mixed",
        "Distances, layers and the map of conditions": "report all of them",
        "Distance and error, (iii) adapted to it, on clean images": (
            f"bench run --out {whole} --extend --methods reverse"
        ),
    }.items():
        assert gaps[title].command == f"covshift {more}"


def test_commands_of_gaps_can_be_run(tmp_path):
    """What they say after `--extend` are settings; the rest comes from the run."""
    runs = [make_run(tmp_path / "plain", **SMALL, limit=500), make_run(tmp_path / "camera", corruptions="none")]
    gaps = [p for section in sections(gather(runs).results) for p in section.parts if isinstance(p, Gap)]
    commands = [shlex.split(line) for gap in gaps for line in gap.command.splitlines()]
    extending = [words for words in commands if "--extend" in words]
    assert len(extending) > 3
    for _, bench, run, out, folder, extend, *options in extending:
        assert (bench, run, out, extend) == ("bench", "run", "--out", "--extend")
        values = dict(re.findall(r"--(\w+)(?: (?!--)(\S+))?", " ".join(options)))
        given = {name: value or True for name, value in values.items()}
        assert Settings.read(from_held(folder) | given).limit == Store(Path(folder)).run.settings.limit


def test_a_run_that_has_just_begun_is_told_how_to_go_on(tmp_path):
    folder = make_run(tmp_path / "a b", **SMALL, keep=0.05)
    (result,) = gather([folder]).results
    (gap,) = corruptions.section([result]).parts
    assert gap.command == result.run.settings.command(str(folder))
    gaps = [part for section in sections([result]) for part in section.parts if isinstance(part, Gap)]
    assert not [gap.command for gap in gaps if "bench run --out RUN" in gap.command]


def test_normalisations_stand_side_by_side(tmp_path):
    plain = results(tmp_path, "resnet20", model="builtin:resnet20")
    others = [
        *results(tmp_path, "gn", model="builtin:resnet20-gn", methods="none"),
        *results(tmp_path, "f", model="builtin:resnet20-fixup", methods="none"),
    ]
    (table,) = architectures.norms([*plain, *others], criterion(plain))
    assert table.lines[0][0].text == "resnet20"
    assert all(cell.text for cell in table.lines[0])
    assert architectures.norms(plain, criterion(plain)) == []
    assert table.columns == ("model", "Fixup", "GN", "BN", "BN, adapted")


ANCHORED = {"model": "builtin:resnet20-fixup", "methods": "none,partial:anchored,full:anchored"}


def test_a_run_that_was_only_anchored_is_told_by_its_anchored_scenarios(tmp_path):
    (result,) = results(tmp_path, "f", **ANCHORED)
    names = ("none", "partial:anchored", "full:anchored")
    assert result.scenarios == names
    assert overview.table([result]).columns == ("model", "clean", *names, "Δ", "N")
    assert corruptions.table(result).columns == ("corruption", *names, "Δ")
    gaps = [part for section in sections([result]) for part in section.parts if isinstance(part, Gap)]
    commands = [line for gap in gaps for line in gap.command.splitlines()]
    assert not [line for line in commands if "--grid" in line or "--measure" in line or "anchored" in line]
    assert not [line for line in commands if " RUN" in line]


def test_an_anchored_run_that_is_not_finished_is_told_by_what_all_its_methods_have(tmp_path):
    some = {"corruptions": "fog,snow", "prior": 16, **ANCHORED}
    (result,) = gather([make_run(tmp_path / "f", **some, keep=0.6)]).results
    assert 0 < len(result.shared) < len(result.planned)
    assert result.adapted == "full:anchored"
    said = overview.sentence(result)
    assert re.search(rf"\(in {len(result.shared)} of {len(result.planned)} conditions so far\)\. Anchored full", said)
    (begun,) = gather([make_run(tmp_path / "begun", **some, keep=0.05)]).results
    assert "holds no statistics" not in overview.sentence(begun)


def test_networks_without_statistics_that_were_anchored_have_columns_and_lines(tmp_path):
    plain = results(tmp_path, "resnet20", model="builtin:resnet20")
    methods = "none,full:anchored,stream:n=1,N=16,anchored"
    others = [
        *results(tmp_path, "gn", model="builtin:resnet20-gn", methods=methods),
        *results(tmp_path, "f", model="builtin:resnet20-fixup", methods="none"),
    ]
    results(tmp_path, "vit", model="torchvision:vit_b_16", methods=methods)
    held = tmp_path / "vit" / "run.json"
    held.write_text(held.read_text().replace('"model_norm": ""', '"model_norm": "layer"'))
    others += gather([held.parent]).results
    (table,) = architectures.norms([*plain, *others], criterion(plain))
    assert table.columns == ("model", "Fixup", "GN", "LN", "BN", "GN, adapted", "LN, adapted", "BN, adapted")
    lines = {line[0].text: dict(zip(table.columns, line, strict=True)) for line in table.lines}
    assert lines.keys() == {"resnet20", "vit_b_16"}
    (gn,) = (result for result in others if result.name == "gn")
    assert gn.adapted == "full:anchored"
    assert not gn.adaptable
    assert lines["resnet20"]["GN, adapted"].text == f"{100 * gn.mean('full:anchored').value:.1f}"
    assert lines["vit_b_16"]["LN, adapted"].text
    assert re.search(r"\. Anchored full adaptation gives back \d", overview.sentence(gn))
    found = overview.section([*plain, *others])
    assert found.parts[0].columns == ("model", "clean", "none", "partial", "full", "full:anchored", "Δ", "N")
    assert {row["method"] for row in found.parts[1].rows} == {"none", "partial", "full", "full:anchored"}
    gaps = [part for part in found.parts if isinstance(part, Gap)]
    assert [(gap.reason, gap.command) for gap in gaps] == [
        (
            "it was not run, and networks without statistics take no other (f)",
            f"covshift bench run --out {tmp_path / 'f'} --extend --methods full:anchored",
        )
    ]
    alone = overview.section([gn])
    assert alone.parts[0].columns == ("model", "clean", "none", "full:anchored", "Δ")
    assert "(none), normalised to measured clean images, by all images of a condition (full:anchored). Δ" in alone.text


def test_anchored_scenarios_stand_beside_the_others(tmp_path):
    both = "none,partial,full,partial:anchored,full:anchored"
    (batch,) = results(tmp_path, "batch", model="builtin:resnet20", methods=both)
    found = overview.section([batch])
    wanted = ("none", "partial", "partial:anchored", "full", "full:anchored")
    assert found.parts[0].columns == ("model", "clean", *wanted, "Δ", "N")
    assert "Δ is what full changes" in found.text
    assert corruptions.table(batch).columns == ("corruption", *wanted, "Δ")
    (group,) = results(tmp_path, "gn", model="builtin:resnet20-gn", methods="none,partial:anchored,full:anchored")
    assert "Δ is what full, or else full:anchored changes" in overview.section([batch, group]).text


def test_norms_are_compared_in_the_same_conditions(tmp_path):
    other = results(tmp_path, "a", model="builtin:resnet20", methods="none,full", corruptions="fog")
    same = results(tmp_path, "b", model="builtin:resnet20", methods="none,full")
    group = results(tmp_path, "gn", model="builtin:resnet20-gn", methods="none")
    (table,) = architectures.norms([*other, *same, *group], criterion(group))
    assert table.columns[2] == "BN"
    assert table.lines[0][2].text == f"{100 * same[0].mean('none').value:.1f}"
    assert table.notes == ()


@pytest.mark.parametrize(
    ("model", "kind", "normalised", "base"),
    [
        ("builtin:resnet20-gn", "ResNet", "GN", "resnet20"),
        ("builtin:resnet20-fixup", "ResNet", "Fixup", "resnet20"),
        ("timm:resnet50_gn.a1h_in1k", "ResNet", "GN", "resnet50.a1h_in1k"),
        ("torchvision:wide_resnet50_2", "Wide ResNet", "BN", "wide_resnet50_2"),
        ("torchvision:googlenet", "GoogLeNet", "BN", "googlenet"),
        ("timm:resnext101_32x8d.fb_wsl_ig1b_ft_in1k", "ResNeXt", "BN", "resnext101_32x8d.fb_wsl_ig1b_ft_in1k"),
    ],
)
def test_names_say_what_a_model_is(tmp_path, model, kind, normalised, base):
    (result,) = results(tmp_path, "a", model=model, corruptions="fog", methods="none")
    assert (family(result), norm(result), without_norm(result)) == (kind, normalised, base)
    assert pretraining(result) == ("large-scale" if "wsl" in model else "")


def test_what_a_run_recorded_counts_and_not_the_name(tmp_path):
    (result,) = results(tmp_path, "a", model="m:resnet20-gn", corruptions="fog", methods="none")
    known = {"model_family": "Swin", "model_norm": "layer", "model_pretraining": "simclr"}
    recorded = json.loads((result.folder / "run.json").read_text()) | known
    (result.folder / "run.json").write_text(json.dumps(recorded))
    (again,) = gather([result.folder]).results
    assert (family(again), norm(again), pretraining(again)) == ("Swin", "LN", "simclr")
    assert overview.sentence(again).endswith("It was not adapted: LN holds no statistics.")


@pytest.mark.parametrize(
    ("model", "methods", "normalised", "large"),
    [
        ("m:campaign", "none,full", "BN", False),
        ("m:vgg16", "none", "", False),
        ("m:vgg16_bn", "none", "BN", False),
        ("m:resnet-big-x", "none", "BN", False),
        ("m:resnet20gn", "none", "GN", False),
        ("m:vit_base_patch16_clip_224.openai", "none", "", True),
    ],
)
def test_names_do_not_say_more_than_they_do(tmp_path, model, methods, normalised, large):
    (result,) = results(tmp_path, "a", model=model, corruptions="fog", methods=methods)
    assert (norm(result), pretraining(result) == "large-scale") == (normalised, large)


def test_means_over_other_conditions_are_said_to_be(tmp_path):
    whole = results(tmp_path, "resnet20", model="builtin:resnet20")
    part = results(tmp_path, "GN", model="builtin:resnet20-gn", methods="none", severities="3")
    note = "means are not over the same conditions: 2 × severity 1, 3: resnet20; 2 × severity 3: GN"
    (table,) = architectures.norms([*whole, *part], criterion(whole))
    assert table.notes == (note,)
    assert note in overview.table([*whole, *part]).notes
    scatter = architectures.scatter([*whole, *part], criterion(whole))
    assert all(note.replace("means", "Means") in figure.caption for figure in scatter)
    assert not uneven([*whole, *results(tmp_path, "twin")])


def test_means_over_other_images_are_said_to_be(tmp_path):
    drawn = {"a": (None, 0), "all": (1000, 1), "few": (20, 0), "too": (20, 0), "other": (20, 1)}
    found = [result for name, (n, seed) in drawn.items() for result in results(tmp_path, name, limit=n, seed=seed)]
    note = "the models were not all shown the same images: 1,000 of npz:nowhere.npz: a, all; 20 of npz:nowhere.npz: few"
    assert uneven(found) == (f"{note}, too; 20 of npz:nowhere.npz (seed 1): other",)
    assert uneven(found)[0] in overview.table(found).notes


@pytest.mark.parametrize(
    ("settings", "note"),
    [
        ({}, "no mCE: AlexNet's errors are a yardstick on all of ImageNet's classes only"),
        ({"imagenet": True}, "no mCE: it takes all 15 test corruptions at all 5 severities"),
        ({"prior": 16}, "N was given, not searched: net"),
        ({"order": "label"}, "images were not shuffled, in the order label: net"),
    ],
)
def test_what_the_main_table_lacks_is_said_below(tmp_path, settings, note):
    (result,) = gather([make_run(tmp_path / "net", **SMALL, **settings)]).results
    assert [each for each in overview.table([result]).notes if each.startswith(note)]


def test_the_main_table_offers_partial_adaptation(tmp_path):
    found = [*results(tmp_path, "a", methods="none,full"), *results(tmp_path, "resnet-gn", methods="none")]
    assert (
        overview.section(found).parts[-1].command
        == f"covshift bench run --out {found[0].folder} --extend --methods partial"
    )
    assert overview.sentence(found[1]).endswith("It was not adapted: GN holds no statistics.")


def test_models_are_counted_once(tmp_path):
    found = [
        *results(tmp_path, "a", "b", model="m:x"),
        *results(tmp_path, "c"),
        *results(tmp_path, "d", methods="none"),
    ]
    captions = {figure.caption for figure in architectures.scatter(found, criterion(found))}
    assert captions == {"Adapting improves 2 of 2 models. Lines join the same model before and after."}
    alone = architectures.scatter(results(tmp_path, "e", "f", methods="none"), criterion(found))
    assert {figure.caption for figure in alone} == {""}
    assert written_readme([result.folder for result in found]).startswith("# Covariate shift: 3 models in 4 runs\n")


def test_names_that_differ_have_files_that_do(tmp_path):
    found = results(tmp_path, "a b", "a+b", "a-b")
    assert len({file_name(result) for result in found}) == 3


def test_models_can_be_told_apart(tmp_path):
    """By colour and shape together; and a filled mark needs an area: a stroke has none."""
    assert math.lcm(len(COLOURS), len(SHAPES)) >= 90
    assert "stroke" not in SHAPES


def test_a_name_is_no_width(tmp_path):
    chart = overview.chart(results(tmp_path, "container", "other"))[0].on_paper()
    assert chart["width"] == WIDTH
    assert "container" in json.dumps(chart["layer"])


def test_a_lonely_batch_size_does_not_hide_a_curve(tmp_path):
    methods = "none,batch:n=64,N=0,batch:n=8,N=4,batch:n=64,N=4"
    (drawn,) = natural.curves(results(tmp_path, "a", methods=methods))
    assert [(row["n"], row["prior"]) for row in drawn.rows][:2] == [(8, "N = 4"), (64, "N = 4")]


def test_priors_have_dashes_of_their_own(tmp_path):
    """The least N of those with the most batch sizes, and not that of images in another order."""
    most = results(tmp_path, "a", methods="none,batch:n=8,N=0,batch:n=64,N=0", grid=True)
    ordered = results(tmp_path, "b", methods="none,batch:n=8,N=16,batch:n=64,N=16", order="label")
    (drawn,) = natural.curves([*most, *ordered])
    scale = drawn.spec["layer"][0]["encoding"]["strokeDash"]["scale"]
    assert scale["domain"] == ["N = 1", "N = 16", "no adaptation"]
    assert len({*map(tuple, scale["range"])}) == 3
    (low_resource, *_) = batches.low_resource([*most, *ordered], criterion(most))
    for figure in (drawn, low_resource):
        assert figure.caption.endswith(" Images were not shuffled, in the order label: b.")


def test_natural_runs_and_mixtures_have_lines(tmp_path):
    camera = results(tmp_path, "camera", corruptions="", data="npz:camera.npz", methods="none,full,batch:n=8,N=0")
    mixed = results(tmp_path, "mixed", mixed=True)
    section = natural.section([*camera, *mixed])
    (table,) = parts(section, Table).values()
    assert [line[1].text for line in table.lines] == [
        "npz:camera.npz, as they are",
        "npz:nowhere.npz, clean",
        "npz:nowhere.npz, mixed corruptions",
    ]
    row = camera[0].table["none"][("clean", 0)]
    assert table.lines[0][2].text == f"{100 * row.top1_errors / row.images:.1f}"


def test_figures_are_the_same_bytes_for_the_same_rows(tmp_path):
    found = results(tmp_path, "a", "b", grid=True)
    first, second = (parts_of(found) for _ in range(2))
    assert first == second
    drawn = [svg(figure) for figure in first[:3]]
    assert drawn == [svg(figure) for figure in reversed(second[:3])][::-1]
    assert all("currentColor" not in text for text in drawn)


def parts_of(found):
    return [part for section in sections(found) for part in section.parts if isinstance(part, Figure)]


def test_files_have_the_numbers_of_the_page(tmp_path, monkeypatch):
    monkeypatch.setattr("covshift.report.page.vega", lambda: "")
    runs = [make_run(tmp_path / name, **SMALL) for name in ("a", "b")]
    page = report(runs, tmp_path / "out", images=False, readme=tmp_path / "README.md").read_text()
    kinds = {file.suffix for file in (tmp_path / "out").glob("*/*")}
    assert kinds == {".svg", ".pdf", ".png", ".csv", ".md", ".tex"}
    rows = list(csv.DictReader(io.StringIO((tmp_path / "out" / "tables" / "overview.csv").read_text())))
    latex = (tmp_path / "out" / "tables" / "overview.tex").read_text()
    readme = (tmp_path / "README.md").read_text()
    for row in rows:
        for name in ("clean", "none", "partial", "full", "Δ"):
            assert row[name]
            assert row[name] in latex
            assert row[name] in page
            assert row[name] in readme
    again = report(runs, tmp_path / "out", images=False, files=False, readme=tmp_path / "README.md")
    assert again.read_text() == page
    assert (tmp_path / "README.md").read_text() == readme == written_readme(runs)


def test_comparing_marks_what_is_more_than_chance(tmp_path):
    good, bad = (make_run(tmp_path / name, quality, **SMALL) for name, quality in (("good", 0.05), ("bad", 0.25)))
    twin = make_run(tmp_path / "twin", **SMALL)
    (twin / "rows.jsonl").write_text(
        (good / "rows.jsonl").read_text().replace(Store(good).run.settings.model, Store(twin).run.settings.model)
    )
    first, second, same = gather([good, bad, twin]).results
    lines = compare.compare(first, second, "none")
    assert lines[0].label == "all test corruptions"
    assert lines[0].change.difference.value == pytest.approx(0.2, abs=0.03)
    assert all(line.change.difference.significant for line in lines)
    assert not any(line.change.difference.significant for line in compare.compare(first, same, "none"))


def test_comparing_says_which_methods_only_one_run_has(tmp_path):
    (first,), (second,) = (results(tmp_path, name, methods=f"none,{name}", grid=True) for name in ("full", "partial"))
    assert compare.section(first, second).text.endswith("are left out, and so are the methods full, partial.")
    assert compare.section(first, first).text.endswith("are left out.")


def test_an_interval_of_a_difference_holds_it(tmp_path):
    import numpy as np

    from covshift.bench.results.difference import difference

    rng = np.random.default_rng(0)
    counts = rng.binomial(200, [0.3, 0.4], (2000, 2))
    found = [difference(rate(int(a), 200), rate(int(b), 200)) for a, b in counts]
    assert 0.93 < np.mean([each.low <= 0.1 <= each.high for each in found]) < 0.975


def test_comparing_takes_two_runs_with_something_in_common(tmp_path):
    a = make_run(tmp_path / "a", corruptions="fog", clean=False, methods="none")
    b = make_run(tmp_path / "b", corruptions="snow", clean=False, methods="none")
    c = make_run(tmp_path / "c", corruptions="fog", clean=False, methods="full")
    with pytest.raises(CovshiftError, match="two runs"):
        report([a], tmp_path / "out", compare=True, images=False)
    with pytest.raises(CovshiftError, match="no condition in common"):
        report([a, b], tmp_path / "out", compare=True, images=False)
    with pytest.raises(CovshiftError, match="method in common"):
        report([a, c], tmp_path / "out", compare=True, images=False)
