"""Vacuum deletes all garbage and no file that a version, a pin or an upload needs, with any interleaving or clock."""

from collections import Counter

import pytest

from tests.simulation.vacuum_race import Race
from tests.support.drivers.seeds import run_seed


def test_a_short_race_loses_nothing_and_leaves_nothing(tmp_path):
    done = Race(tmp_path / "race", run_seed(), epochs=80, reads=100, fresh=1, fresh_reads=60).run()
    print(dict(done))
    assert done["reads"] >= 200 and done["fresh: reads"] == 60 and done["writer: committed"]
    assert done["stale"] > 5 and done["orphaned"] > 5 and done["replacer: replaced"] > 5


@pytest.mark.slow
@pytest.mark.timeout(3_600)
def test_a_long_race_loses_nothing_and_leaves_nothing(tmp_path):
    done = Counter()
    for part in range(5):
        race = Race(tmp_path / f"race-{part}", run_seed() + part, epochs=1_000, reads=1_000, fresh=10, fresh_reads=400)
        done.update(race.run())
        print(dict(done))
    assert done["fresh: reads"] >= 20_000 and done["reads"] >= 10_000
    assert done["writer: replaced"] and done["of older versions"] and done["fresh: of older versions"]
    assert done["writer: refused"] + done["expired"] + done["fresh: expired"], "no clock jump expired anything"
