"""Results as one Markdown file, for a README or a page of the documentation."""

from collections.abc import Sequence

from covshift.report.overview import sentence
from covshift.report.parts import Section
from covshift.report.results import Result
from covshift.report.sheet import Sheet, as_markdown


def as_readme(title: str, results: Sequence[Result], sections: Sequence[Section]) -> str:
    """The summary, all tables, and the commands of the runs.

    It depends on rows and measurements alone, not on where the folders are: who makes it again gets the same file.
    """
    lines = [f"# {title}", "", "<!-- Written by covshift report from the rows of the runs; do not edit. -->", ""]
    lines += [f"- **{result.name}** {sentence(result)}" for result in results]
    for section in sections:
        sheets = [part for part in section.parts if isinstance(part, Sheet)]
        if not sheets:
            continue
        lines += ["", f"## {section.title}", "", section.text]
        for sheet in sheets:
            lines += ["", f"### {sheet.title}", "", as_markdown(sheet).rstrip()]
            lines += [f"\n{note}" for note in sheet.notes]
    lines += ["", "## Runs", "", "Each by one command; what is there is not run again.", "", "```sh"]
    lines += [result.run.settings.command(result.folder.name) for result in results]
    lines += ["```"]
    return "\n".join(lines) + "\n"
