"""The file of answers: blocks one after the other, of which only those count that a row points to.

Blocks are written and flushed to disk before the rows that point to them, by one process at a time. What a killed
process leaves behind the last block that counts has no row, and the next process that writes cuts it off.
"""

import zlib
from collections.abc import Sequence
from pathlib import Path

from covshift.bench.results.records import Block
from covshift.support.errors import CovshiftError
from covshift.support.files import write_behind

FILE = "answers.safetensors.gz"

_GZIP = 31  # what zlib calls a gzip member
_CHUNK = 2**16  # bytes


class Blocks:
    """The file of answers of a run folder.

    Args:
        folder: the folder of the run.
    """

    def __init__(self, folder: Path) -> None:
        self.file = folder / FILE

    def read(self, block: Block) -> bytes | None:
        """Return the bytes of a block; None where there is no file, as rows may be copied without it."""
        try:
            with self.file.open("rb") as file:
                file.seek(block.at)
                content = file.read(block.size)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise CovshiftError(f"cannot read {self.file}: {error.strerror or error}") from error
        if len(content) < block.size or zlib.crc32(content) != block.crc:
            raise CovshiftError(
                f"{self.file} was changed: what is at byte {block.at} is not what was written there; put the file "
                "back, or delete it, which leaves the rows without answers"
            )
        return content

    def first(self) -> bytes | None:
        """Return the bytes of the first block, whose size no row says; None where there is no file."""
        try:
            with self.file.open("rb") as file:
                inflate, content = zlib.decompressobj(wbits=_GZIP), b""
                while not inflate.eof and (more := file.read(_CHUNK)):
                    inflate.decompress(more)
                    content += more
        except FileNotFoundError:
            return None
        except (OSError, zlib.error) as error:
            raise CovshiftError(f"cannot read {self.file}: {error}; put a whole copy back, or delete it") from error
        return content[: len(content) - len(inflate.unused_data)]

    def append(self, contents: Sequence[bytes], end: int) -> list[Block]:
        """Write blocks behind the last one that counts, or nothing at all.

        Args:
            contents: the blocks.
            end: the number of bytes in the file up to the end of the last block that a row points to.
        """
        blocks, at = [], end
        for content in contents:
            blocks.append(Block(at=at, size=len(content), crc=zlib.crc32(content)))
            at += len(content)
        there = self.file.stat().st_size if self.file.exists() else 0  # before opening it, which would make the file
        if there < end:
            raise CovshiftError(
                f"expected {end} bytes in {self.file}, which rows point to, got {there}; put the file back, or "
                "continue without answers: `answers=False`"
            )
        with self.file.open("ab", buffering=0) as file:
            write_behind(file, b"".join(contents), end)
        return blocks
