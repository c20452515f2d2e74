"""Two processes send batches and single requests at once to a session whose process is killed at a step and started
again, several times: each row is in the table once, and the view agrees with it."""

import random
import threading

import pytest

import stream
from relational.errors import RequestRefused
from relational.inbox.client import Inbox
from relational.inbox.records import Outcome
from tests.simulation.child import KILLED
from tests.simulation.inbox_child import main
from tests.simulation.inbox_world import TABLE, VIEW, rows_of, stored
from tests.simulation.test_crash import POINTS
from tests.support.drivers.seeds import amount, run_seed
from tests.support.drivers.spawned import Spawned

BATCHES, ROWS, KILLS = 6, 25, amount(1, 2)
ANSWER_MS, ENDS_SECONDS = 120_000, 60
pytestmark = pytest.mark.timeout(300)


class Client(threading.Thread):
    """Sends batches of a writer, and a request that is refused between them; each once it has the answer to the one
    before. `outcomes` are those of the batches."""

    def __init__(self, url, writer, first, batches):
        super().__init__()
        self.url, self.writer, self.first, self.batches = url, writer, first, batches
        self.outcomes, self.error = [], None

    def run(self):
        try:
            with Inbox(self.url, timeout_ms=ANSWER_MS) as inbox:
                for number in range(self.batches):
                    ids = self.ids(number)
                    answer = inbox.ingest("t", rows_of(ids), writer=self.writer, checkpoint="c", batch_id=number)
                    self.outcomes.append(answer.outcome)
                    with pytest.raises(RequestRefused, match="DuplicateKey"):
                        inbox.insert("t", rows_of([10**9 + self.first + number, ids[-1]]))
        except BaseException as error:
            self.error = error

    def ids(self, number):
        return range(self.first + number * ROWS, self.first + (number + 1) * ROWS)


@pytest.mark.parametrize("point", POINTS)
def test_requests_are_carried_out_once_whatever_step_their_session_dies_at(point, tmp_path):
    check_kills(tmp_path, [(point, 2 + turn % 2) for turn in range(KILLS)])


@pytest.mark.slow
@pytest.mark.parametrize("turn", range(6))
def test_killed_at_many_steps_in_turn_it_carries_out_each_request_once(turn, tmp_path):
    rng = random.Random(f"{run_seed()} {turn}")
    check_kills(tmp_path, [(rng.choice(POINTS), rng.randrange(1, 4)) for _ in range(8)], batches=20)


def check_kills(tmp_path, kills, batches=BATCHES):
    """Servers die in turn at each of `kills`, a point and how often it is reached, while clients send `batches`."""
    url = f"file://{tmp_path}/store"
    with stream.connect(url, create=True) as session:
        session.sql(TABLE)
        session.sql(VIEW)
    clients = [Client(url, "one", 0, batches), Client(url, "two", 10_000, batches)]
    for client in clients:
        client.start()
    codes = [Spawned(main, url, point, nth).ended(ENDS_SECONDS) for point, nth in kills]
    server = Spawned(main, url, "none", 0)
    for client in clients:
        client.join(ANSWER_MS / 1_000)
        assert not client.is_alive() and client.error is None, client.error
        assert client.outcomes == [Outcome.WRITTEN] * batches
    server.finish()
    assert codes == [KILLED] * len(kills) and server.ended(ENDS_SECONDS) == 0
    with stream.connect(url, create=True) as session:
        assert stored(session) == sorted(number for client in clients for number in
                                         range(client.first, client.first + batches * ROWS))
