"""Which engine a store's jobs should run on: the rule, and what it says of a running session.

    busy       CPU seconds per second of all fragments, as a share of the cores of this machine
    state      stored bytes of the tables that the jobs write, as a multiple of the memory of this machine

Spark, where busy is above BUSY_SHARE: sources deliver more than this machine can process, and lag grows; or state is
above STATE_SHARE of its memory: hot keys no longer stay in memory, and each epoch waits for the disk. One process,
where busy would be below IDLE_SHARE and state below half of STATE_SHARE: an epoch of few rows takes milliseconds here
and tens to hundreds of them on Spark. Between both limits a store stays where it is, so that it does not go back and
forth. Either engine goes on from any committed epoch of the other.
"""

from __future__ import annotations

from dataclasses import dataclass

BUSY_SHARE, IDLE_SHARE = 0.7, 0.3
STATE_SHARE = 4.0
PROCESS, SPARK = "process", "spark"


@dataclass(frozen=True, slots=True)
class EngineFigures:
    """What the rule looks at. `engine`: the one that runs the jobs now."""

    engine: str
    busy_cores: float
    cores: int
    state_bytes: int
    memory_bytes: int


@dataclass(frozen=True, slots=True)
class EngineChoice:
    """The engine that the jobs should run on, and why."""

    engine: str
    reason: str

    def __str__(self) -> str:
        return f"{self.engine}: {self.reason}"


def choose_engine(figures: EngineFigures) -> EngineChoice:
    """The choice for a store by the rule of this module."""
    busy, state = figures.busy_cores / figures.cores, figures.state_bytes / figures.memory_bytes
    busy_text = f"the jobs use {figures.busy_cores:.1f} of {figures.cores} cores"
    state_text = f"their state is {state:.1f} times the memory of this machine"
    if busy > BUSY_SHARE:
        return EngineChoice(SPARK, f"{busy_text}, more than {BUSY_SHARE:.0%}")
    if state > STATE_SHARE:
        return EngineChoice(SPARK, f"{state_text}, more than {STATE_SHARE:g}")
    if busy < IDLE_SHARE and state < STATE_SHARE / 2:
        return EngineChoice(PROCESS, f"{busy_text}, and {state_text}: this machine is enough")
    return EngineChoice(figures.engine, f"{busy_text}, and {state_text}: neither engine is clearly the better one")
