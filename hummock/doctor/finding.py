"""Findings of the doctor, and what its checks look at."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Any, Self, TypeAlias

from hummock.epoch import Epoch, to_unix_ms
from hummock.meta.store.base import MetaStore
from hummock.meta.vacuum.vacuum import Vacuum, VacuumReport
from hummock.meta.version_log import LogPosition
from hummock.object_store.base import ObjectStore
from hummock.options import VacuumOptions, check_range
from hummock.version import HummockVersion

HOUR_MS = 3_600_000
WHOLE = 1 << 62         # objects per run: no limit


class Severity(StrEnum):
    """How bad it is; the worst first."""

    ERROR = "error"         # rows are lost or the store cannot be used, now or soon
    WARNING = "warning"     # it costs speed or space until somebody acts
    NOTE = "note"           # worth knowing; nothing has to be done


@dataclass(frozen=True, slots=True)
class Finding:
    """What `check` found, and the command or action that helps."""

    severity: Severity
    check: str
    what: str
    remedy: str = ""

    @classmethod
    def error(cls, check: str, what: str, remedy: str = "") -> Self:
        return cls(Severity.ERROR, check, what, remedy)

    @classmethod
    def warning(cls, check: str, what: str, remedy: str = "") -> Self:
        return cls(Severity.WARNING, check, what, remedy)

    @classmethod
    def note(cls, check: str, what: str, remedy: str = "") -> Self:
        return cls(Severity.NOTE, check, what, remedy)


@dataclass(frozen=True, slots=True)
class DoctorOptions:
    """`is_deep`: content is read and verified, with `threads` at once. `grace_ms`: younger files that are in no version
    count as being written. `old_ms`: what holds an epoch back for longer, or waits for longer, is a finding.
    """

    is_deep: bool = False
    threads: int = 4
    grace_ms: int = HOUR_MS
    old_ms: int = HOUR_MS

    def __post_init__(self) -> None:
        check_range("threads", self.threads, 1, 64)
        check_range("grace_ms", self.grace_ms, 0, 1 << 62)
        check_range("old_ms", self.old_ms, 0, 1 << 62)


@dataclass
class Examined:
    """A store that can be opened. `place`: its URL, and `--meta` if that is elsewhere, as commands take them."""

    place: str
    objects: ObjectStore
    meta_store: MetaStore
    position: LogPosition
    now_ms: int
    options: DoctorOptions

    @property
    def version(self) -> HummockVersion:
        return self.position.version

    @property
    def committed_epoch(self) -> Epoch:
        return self.version.max_committed_epoch

    @cached_property
    def stored(self) -> VacuumReport:
        """All stored files by need, as a dry run of vacuum finds them."""
        options = VacuumOptions(grace_ms=self.options.grace_ms, objects_per_run=WHOLE)
        return Vacuum(self.meta_store, self.objects, options=options).run(dry_run=True)

    def held_ms(self, epoch: int) -> int:
        """How long before the committed epoch `epoch` was, in milliseconds; 0 if it is that one, or a later one."""
        return max(0, to_unix_ms(self.committed_epoch) - to_unix_ms(epoch)) if epoch else 0


Check: TypeAlias = "Callable[[Examined], Iterator[Finding]]"


@dataclass
class DoctorReport:
    """`about`: what was examined, in a few facts. `findings`: the worst first."""

    about: dict[str, Any] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)

    @property
    def is_healthy(self) -> bool:
        """Whether nothing has to be done."""
        return all(found.severity is Severity.NOTE for found in self.findings)

    def sort(self) -> None:
        """The worst first, each kind in the order of the checks."""
        order = list(Severity)
        self.findings.sort(key=lambda found: order.index(found.severity))

    def to_json(self) -> dict[str, Any]:
        return {"healthy": self.is_healthy, "about": self.about,
                "findings": [asdict(found) for found in self.findings]}
