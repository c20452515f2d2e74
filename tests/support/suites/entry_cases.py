"""The small language of text cases over entries: titles, runs, commands and their expected output."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from hummock.columnar.write_batch import WriteBatch
from hummock.iterator.merge import MergeIterator
from hummock.shared_buffer.batch import SharedBufferBatch, SharedBufferBatchIterator

CASES = Path(__file__).parents[2] / "cases"
Entry = tuple[bytes, int, bytes | None]


@dataclass
class Case:
    title: str
    runs: list[list[Entry]] = field(default_factory=list)
    steps: list[tuple[list[str], list[str]]] = field(default_factory=list)  # command words, expected words


def read_cases(name: str) -> list[Case]:
    """The cases of a file of `tests/cases`, in order."""
    cases: list[Case] = []
    for line in (CASES / name).read_text().splitlines():
        words = line.split()
        if not words or line.startswith("#"):
            continue
        if words[0] == "==":
            cases.append(Case(" ".join(words[1:])))
        elif words[0] == "run":
            cases[-1].runs.append([parse_entry(word) for word in words[1:]])
        elif words[0] == "->":
            cases[-1].steps[-1][1].extend(words[1:])
        else:
            cases[-1].steps.append((words, []))
    return cases


def parse_key(word: str) -> bytes:
    return b"" if word == "_" else word.encode()


def parse_epoch(word: str) -> int:
    pure, _, flush = word.partition(".")
    return int(pure) << 16 | int(flush or 0)


def parse_entry(word: str) -> Entry:
    key, _, rest = word.partition("@")
    epoch, is_put, value = rest.partition("=")
    return parse_key(key), parse_epoch(epoch.removesuffix("-")), value.encode() if is_put else None


def show_entry(entry: Entry) -> str:
    key, epoch, value = entry
    flush = f".{epoch & 0xFFFF}" if epoch & 0xFFFF else ""
    shown = "-" if value is None else f"={value.decode()}"
    return f"{key.decode() or '_'}@{epoch >> 16}{flush}{shown}"


def iterator_of(run: list[Entry], direction: int = 1) -> MergeIterator:
    """An iterator over one run, with a batch per epoch."""
    epochs = sorted({epoch for _, epoch, _ in run}, reverse=True)
    batches = [
        SharedBufferBatch(WriteBatch([(key, value) for key, at, value in run if at == epoch]), epoch)
        for epoch in epochs
    ]
    return MergeIterator([SharedBufferBatchIterator(batch, direction) for batch in batches], direction)
