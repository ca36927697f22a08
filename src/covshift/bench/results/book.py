"""`AnswerBook`: the answers of a run, read back and held against the rows that count them."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from covshift.bench.results.answers import Answers, ImageTable, from_block
from covshift.bench.results.blocks import Blocks
from covshift.bench.results.records import Row
from covshift.support.errors import CovshiftError

if TYPE_CHECKING:
    import pandas

COLUMNS = ("corruption", "severity", "method", "index", "name", "label", "answer", "right", "in_top5", "confidence")
"""The columns of the frame of answers."""


class AnswerBook:
    """The answers in a run folder.

    Args:
        folder: the folder of the run.
    """

    def __init__(self, folder: Path) -> None:
        self.blocks = Blocks(folder)
        self._images: ImageTable | None = None

    @property
    def images(self) -> ImageTable | None:
        """The images that the run shows, in its order; None where it has no file of answers."""
        if self._images is None and (content := self.blocks.first()) is not None:
            self._images = ImageTable.from_block(content, str(self.blocks.file))
        return self._images

    def has(self, row: Row) -> bool:
        """Return whether there are answers of a row: they were kept, and their file is there."""
        return row.answers is not None and self.blocks.file.exists()

    def of(self, row: Row) -> Answers | None:
        """Return the answers that a row counts; None where they were not kept, or where their file is not there."""
        if row.answers is None or (content := self.blocks.read(row.answers)) is None:
            return None
        images = self.images
        assert images is not None
        answers = from_block(content, row.cell, images, str(self.blocks.file))
        wrong = int((answers.classes != images.labels[images.places(answers.indices)]).sum())
        counts = (len(answers.indices), wrong, int((~answers.in_top5).sum()))
        if counts != (row.images, row.top1_errors, row.top5_errors):
            raise CovshiftError(
                f"{self.blocks.file} does not fit the row of {row.cell}: it has {counts[0]} images with {counts[1]} "
                f"and {counts[2]} errors, and the row {row.images} with {row.top1_errors} and {row.top5_errors}; "
                "delete that row, and the same covshift bench run runs it again"
            )
        return answers

    def problem(self, rows: Sequence[Row]) -> str | None:
        """Return why the answers of rows cannot be used; None where all that were kept can be read and fit the row."""
        try:
            for row in rows:
                self.of(row)
        except CovshiftError as error:
            return str(error)
        return None

    def frame(self, rows: Sequence[Row]) -> "pandas.DataFrame":
        """Return a line for each image of each row whose answers are kept; words are categories, which take little."""
        import pandas

        kept = [(row, answers) for row in rows if (answers := self.of(row)) is not None]
        images = self.images if kept else None
        if images is None:
            return pandas.DataFrame(columns=list(COLUMNS))
        times = [len(answers.indices) for _, answers in kept]

        def words(values: Sequence[str]) -> "pandas.Categorical[str]":
            known = list(dict.fromkeys(values))
            codes = np.repeat([known.index(value) for value in values], times)
            return pandas.Categorical.from_codes(codes, pandas.Index(known))

        places = np.concatenate([images.places(answers.indices) for _, answers in kept])
        found = np.concatenate([answers.classes for _, answers in kept])
        names = pandas.Index(images.names)
        columns = (
            words([row.corruption for row, _ in kept]),
            np.repeat([row.severity for row, _ in kept], times),
            words([row.method for row, _ in kept]),
            images.indices[places],
            pandas.Categorical.from_codes(places, names),
            images.labels[places],
            found,
            found == images.labels[places],
            np.concatenate([answers.in_top5 for _, answers in kept]),
            np.concatenate([answers.probability for _, answers in kept]),
        )
        return pandas.DataFrame(dict(zip(COLUMNS, columns, strict=True)))
