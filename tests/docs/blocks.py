"""The code blocks of Markdown pages, and what each of them needs."""

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PAGES = sorted(page for page in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")] if page.name != "CHANGELOG.md")
_BLOCK = re.compile(
    r"(?:<!-- needs: (?P<needs>[^>]+?) -->\n)?^```(?P<kind>\w+)(?P<info>[^\n]*)\n(?P<code>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


class Block(NamedTuple):
    """A fenced block: its language, the file that it is to be saved as, what it needs, and where it stands."""

    kind: str
    file: str
    needs: str
    code: str
    line: int


def blocks(page: Path, *kinds: str) -> list[Block]:
    """Return the blocks of these languages, in the order of the page."""
    text = page.read_text()
    all_need = "hours of computing" if page.is_symlink() else ""  # results/tables.md, which is made from rows
    found_blocks = []
    for found in _BLOCK.finditer(text):
        if found["kind"] in kinds:
            title = re.search(r'title="(.+?)"', found["info"])
            line = 1 + text[: found.start("code")].count("\n")
            needs = found["needs"] or all_need
            found_blocks.append(Block(found["kind"], title[1] if title else "", needs, found["code"], line))
    return found_blocks


def commands(code: str) -> list[str]:
    """Return the commands of a shell block, with continued lines joined and comments left out.

    >>> commands("a \\\\\\n  b  # why\\n# nothing\\nc")
    ['a b', 'c']
    """
    joined = re.sub(r"\\\n\s*", "", code)
    lines = (re.sub(r"(^|\s)#.*", "", line).strip() for line in joined.splitlines())
    return [line for line in lines if line]
