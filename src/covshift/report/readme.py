"""Results as one Markdown file, for a README or a page of the documentation."""

from collections.abc import Sequence

from covshift.report.gather import Result
from covshift.report.parts import Section
from covshift.report.sections.overview import sentence
from covshift.support.tables import Table
from covshift.support.writers import as_markdown, markdown

_MARK = "<!-- Written by covshift report from the rows of the runs; do not edit. -->"
_SUITE = "suite.yaml"


def as_readme(title: str, results: Sequence[Result], sections: Sequence[Section]) -> str:
    """Return the summary, all tables, and the commands of the runs.

    The text depends on rows and measurements alone, not on where the folders are: whoever makes it again gets the same.
    Where the settings of a suite lie beside the runs, their command is there, too.
    """
    lines = [f"# {markdown(title)}", "", _MARK, ""]
    lines += [f"- **{markdown(result.name)}** {markdown(sentence(result))}" for result in results]
    for section in sections:
        tables = [part for part in section.parts if isinstance(part, Table)]
        if not tables:
            continue
        lines += ["", f"## {markdown(section.title)}", "", markdown(section.text)]
        for table in tables:
            lines += ["", f"### {markdown(table.title)}", "", as_markdown(table).rstrip()]
            lines += [f"\n{markdown(note)}" for note in table.notes]
    introduction = f"{_all_by_one(results)}Each by one command; what is there is not run again."
    lines += ["", "## Runs", "", introduction, "", "```sh"]
    lines += [result.run.settings.command(result.folder.resolve().name) for result in results]
    lines += ["```"]
    return "\n".join(lines) + "\n"


def _all_by_one(results: Sequence[Result]) -> str:
    """Return how to make all runs at once, where the settings of a suite lie beside them."""
    folders = {result.folder.resolve().parent for result in results}
    if len(folders) > 1 or not (folders.pop() / _SUITE).exists():
        return ""
    return f"All of them: `covshift bench run --config {_SUITE} --out .` in their folder. "
