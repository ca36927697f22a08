"""Folders with links in them: every picture once; and names that a terminal or a file system chokes on."""

import os

import pytest
from trees import picture
from typer.testing import CliRunner

from covshift.cli import app
from covshift.corruptions.tree import pictures
from covshift.data.folder import open_folder
from covshift.support.files import replacing
from covshift.support.uri import parse
from covshift.support.walk import walk


def invoke(*words):
    return CliRunner().invoke(app, list(map(str, words)))


@pytest.fixture
def tree(tmp_path):
    root = tmp_path / "tree"
    for index in range(10):
        picture(root / f"class{index % 2}" / f"{index}.png", index)
    return root


@pytest.mark.parametrize("target", ["..", ".", "../class1"])
def test_a_loop_of_links_adds_no_pictures(tree, target):
    before = pictures(tree)
    (tree / "class0" / "loop").symlink_to(target)
    (tree / "class1" / "back").symlink_to("../class0")
    assert pictures(tree) == before
    assert len(open_folder(parse(f"folder:{tree}", "", ""))) == 10
    text = invoke("data", "check", f"folder:{tree}").stdout
    assert "10 images of 2 classes, 5 to 5 of each" in text
    assert "2 links to folders that are counted already" in text


def test_linked_folders_from_elsewhere_count(tree, tmp_path):
    picture(tmp_path / "elsewhere" / "deep" / "a.png")
    (tree / "class2").symlink_to(tmp_path / "elsewhere")
    assert str(pictures(tree)[-1]) == "class2/deep/a.png"
    (tmp_path / "elsewhere" / "up").symlink_to(tree)
    assert len(pictures(tree)) == 11
    (tree / "dangling").symlink_to("nowhere")
    (tree / "self.png").symlink_to("self.png")
    assert len(pictures(tree)) == 11


def test_files_keep_the_name_that_they_have_without_links(tree):
    (tree / "alias").symlink_to("class1")
    walked = walk(tree)
    assert [path.name for path in walked.repeated] == ["alias"]
    assert {path.parent.name for path in walked.files} == {"class0", "class1"}


def test_long_names(tree, tmp_path):
    longest = picture(tree / "class0" / f"{'x' * 250}.png")
    assert len(os.fsencode(longest.name)) == 254
    options = ("--corruptions", "fog", "--severities", "3", "--no-crop")
    result = invoke("corrupt", tree, tmp_path / "out", *options)
    assert result.exit_code == 0, result.output
    assert (tmp_path / "out" / "fog" / "3" / "class0" / f"{'x' * 250}.JPEG").is_file()
    assert not list((tmp_path / "out").rglob("*.part"))
    longest.rename(longest.with_name(f"{'x' * 251}.png"))
    result = invoke("corrupt", tree, tmp_path / "other", *options)
    assert (result.exit_code, result.output.count("\n")) == (1, 1)
    assert "expected names of up to 255 bytes, got 256" in result.output
    with replacing(tmp_path / ("ö" * 127)) as part:
        part.write_text("done")
    assert (tmp_path / ("ö" * 127)).read_text() == "done"


BAD = "red\x1b[31m\x1b]0;title\x07 two\nproblem: lines\x9b\u202e.png"


CORRUPT = ("corrupt", "{}", "{}-out", "--corruptions", "fog", "--severities", "1", "--no-crop")


@pytest.mark.parametrize("words", [("data", "check", "folder:{}"), CORRUPT, (*CORRUPT, "--skip-broken")])
def test_names_do_not_reach_the_terminal_raw(tree, words):
    (tree / "class0" / BAD).write_bytes(b"not a picture")
    result = invoke(*(word.format(tree) for word in words))
    assert not {"\x1b", "\x07", "\x9b", "\u202e"} & set(result.output)
    assert "red\\x1b[31m\\x1b]0;title\\x07 two\\nproblem: lines\\x9b\\u202e.png" in result.output
    assert "\nproblem: lines" not in result.output


def test_names_that_are_no_text(tree):
    (tree / "class0" / os.fsdecode(b"\xff\xfe.png")).write_bytes(b"not a picture")
    result = invoke("data", "check", f"folder:{tree}")
    assert (result.exit_code, result.exception.__class__) == (3, SystemExit)
    assert "\\udcff\\udcfe.png" in result.output
