import threading

import pytest

from hummock.errors import ObjectStoreError, SparkJobFailed
from hummock.meta.store.base import MetaOperations
from stream.errors import ActorFailed, StatementsLost
from stream.message import DeleteRows, EvaluatedChanges, InsertRows, Replayed
from stream.worker import pending_statements
from stream.worker.pending_statements import PendingStatements

SOON = 5.0
ACTOR_FAILED = RuntimeError("an actor failed")


class Changes:
    def __init__(self, nbytes=8):
        self.nbytes = nbytes


class Sender:
    """Sends statements to table 7, "t"."""

    def __init__(self, **limits):
        self.pending = PendingStatements(**limits)
        self.asked = 0

    def ask(self):
        self.asked += 1

    def send(self, epoch, *, rows=1, nbytes=8):
        """A statement that was evaluated in `epoch` and acknowledged."""
        statement = self.sent(epoch)
        statement.result.evaluation = EvaluatedChanges(Changes(nbytes), rows, ())
        statement.result.set_result(rows)
        self.pending.acknowledged(statement.statement_id)
        return statement

    def sent(self, epoch):
        """A statement that is sent and not answered."""
        statement = DeleteRows(self.pending.next_id(), None)
        self.pending.add(statement, 7, "t", self.ask)
        assert self.pending.sent(statement.statement_id, epoch) is None
        return statement

    def recover(self, committed, upto, cause=ACTOR_FAILED):
        """What is sent again; the assumed causes are lost."""
        self.pending.suspend(cause)
        undone = self.pending.resume(committed, upto)
        assert [each.is_suspect for each in undone] == sorted(each.is_suspect for each in undone)
        for pending in undone:
            if pending.is_suspect:
                self.pending.lose(pending)
        return [each for each in undone if not each.is_suspect]


def numbers(undone):
    return [each.statement.statement_id for each in undone]


def test_acknowledged_statements_of_a_discarded_epoch_are_sent_again_in_the_order_of_their_evaluation():
    sender = Sender()
    first, second = sender.sent(20), sender.sent(20)
    for each in (second, first):
        each.result.evaluation = EvaluatedChanges(Changes(), 1, ())
        each.result.set_result(1)
    waiting = sender.sent(20)
    committed = sender.send(10)
    undone = sender.recover(committed=10, upto=20)
    assert numbers(undone) == [second.statement_id, first.statement_id, waiting.statement_id]
    again = [sender.pending.again(each) for each in undone]
    assert [type(each) for each in again] == [Replayed, Replayed, DeleteRows]
    assert again[0].evaluation is second.result.evaluation and again[2] is waiting
    assert committed.statement_id not in numbers(undone)
    assert sender.pending.take_lost() == ()


def test_a_committed_statement_is_never_sent_again():
    sender = Sender()
    sender.send(10)
    sender.pending.committed(10)
    assert sender.recover(committed=10, upto=40) == []
    assert len(sender.pending._pending) == 0


def test_a_statement_that_failed_by_itself_is_not_sent_again():
    sender = Sender()
    sender.sent(20).result.set_exception(ValueError("duplicate"))
    assert sender.recover(committed=10, upto=20) == []
    assert sender.pending.take_lost() == ()


def test_a_statement_whose_table_is_gone_is_named_once():
    sender = Sender()
    statement = sender.send(20)
    (undone,) = sender.recover(committed=10, upto=20)
    sender.pending.lose(undone)
    assert sender.pending.take_lost() == ((statement.statement_id, "t"),)
    assert sender.pending.take_lost() == ()


def test_who_waits_for_the_answer_of_a_lost_statement_gets_the_loss():
    sender, cause = Sender(), RuntimeError("set aside")
    statement = sender.sent(20)
    (undone,) = sender.recover(committed=10, upto=20)
    sender.pending.lose(undone, cause)
    with pytest.raises(StatementsLost, match="table 't'") as raised:
        statement.result.result(SOON)
    assert [each.statement_id for each in raised.value.statements] == [statement.statement_id]
    assert raised.value.__cause__ is cause
    assert sender.pending.take_lost() == ()


def test_a_statement_whose_evaluation_is_interrupted_twice_is_lost():
    sender = Sender()
    statement = sender.sent(20)
    assert statement.result.begin()
    assert numbers(sender.recover(committed=10, upto=20)) == [statement.statement_id]
    assert sender.pending.sent(statement.statement_id, 30) is None
    assert statement.result.begin()
    later = sender.send(30)
    assert numbers(sender.recover(committed=10, upto=30)) == [later.statement_id]
    with pytest.raises(StatementsLost):
        statement.result.result(SOON)


def test_a_statement_is_not_the_cause_of_failures_of_the_store_or_of_tasks():
    store = ObjectStoreError("sst/1.data", "out of reach")
    failed = ActorFailed(7, store)
    failed.__cause__ = store
    sender = Sender()
    statement = sender.sent(20)
    for epoch, cause in enumerate([store, failed, SparkJobFailed("epoch", "killed"), RuntimeError("once"), failed], 2):
        assert statement.result.begin()
        assert numbers(sender.recover(10, 10 * epoch, cause)) == [statement.statement_id]
        assert sender.pending.sent(statement.statement_id, 10 * epoch + 10) is None
    assert sender.recover(10, 70) == []


def test_a_statement_sent_while_a_recovery_ran_is_judged_by_its_epoch():
    sender = Sender()
    sender.pending.committed(10)
    statements = [DeleteRows(sender.pending.next_id(), None) for _ in range(3)]
    for each in statements:
        sender.pending.add(each, 7, "t", sender.ask)
    assert sender.recover(committed=10, upto=20) == []
    assert sender.pending.sent(statements[0].statement_id, 20) is statements[0]
    assert sender.pending.sent(statements[1].statement_id, 30) is None
    assert sender.pending.sent(statements[2].statement_id, 10) is None
    assert len(sender.pending._pending) == 2


def test_who_has_sent_a_statement_waits_while_nobody_knows_which_epochs_were_committed():
    sender, answers = Sender(), []
    statement = DeleteRows(sender.pending.next_id(), None)
    sender.pending.add(statement, 7, "t", sender.ask)
    sender.pending.suspend(ACTOR_FAILED)
    sending = threading.Thread(
        target=lambda: answers.append(sender.pending.sent(statement.statement_id, 20)), daemon=True
    )
    sending.start()
    sending.join(0.05)
    assert sending.is_alive()
    sender.pending.resume(committed=20, upto=20)
    sending.join(SOON)
    assert answers == [None] and len(sender.pending._pending) == 0


@pytest.mark.parametrize("limits", [{"max_uncommitted": 2}, {"max_bytes": 15}])
def test_too_much_that_is_uncommitted_asks_for_a_commit_and_waits_for_it(limits):
    sender = Sender(**limits)
    sender.send(10)
    sender.send(10)
    sending = threading.Thread(target=sender.send, args=(20,), daemon=True)
    sending.start()
    sending.join(0.05)
    assert sending.is_alive() and sender.asked == 1
    sender.pending.committed(10)
    sending.join(SOON)
    assert not sending.is_alive()


def test_closing_answers_everybody_who_waits():
    sender = Sender()
    waiting, acknowledged = sender.sent(20), sender.send(20)
    sender.pending.suspend(ACTOR_FAILED)
    sender.pending.close(RuntimeError("closed"))
    with pytest.raises(StatementsLost):
        waiting.result.result(SOON)
    assert acknowledged.result.result(SOON) == 1


def puts(pending, epoch):
    return dict(pending.operations(epoch).put)


class Recording(Sender):
    """Sends INSERTs which put `row/<id>` in the commit of their epoch."""

    def begun(self):
        number = self.pending.next_id()
        statement = InsertRows(
            number, Changes(), operations=lambda epoch: MetaOperations(put={f"row/{number}": b"%d" % epoch})
        )
        self.pending.add(statement, 7, "t", self.ask)
        return statement

    def evaluate(self, statement):
        statement.result.begin()
        statement.result.evaluation = EvaluatedChanges(Changes(), 1, ())
        statement.result.set_result(1)

    def placed(self, epoch):
        statement = self.begun()
        self.evaluate(statement)
        assert self.pending.sent(statement.statement_id, epoch) is None
        return statement


def test_a_commit_takes_the_operations_of_the_evaluated_statements_of_its_epochs():
    sender = Recording()
    first, second, later = sender.placed(10), sender.placed(15), sender.placed(30)
    failed, waiting, plain = sender.begun(), sender.begun(), sender.send(10)
    failed.result.begin()
    failed.result.set_exception(ValueError("duplicate"))
    for each in (failed, waiting):
        assert sender.pending.sent(each.statement_id, 15) is None
    assert puts(sender.pending, 20) == {f"row/{each.statement_id}": b"20" for each in (first, second)}
    sender.pending.forget(failed.statement_id)
    sender.pending.committed(20)
    assert puts(sender.pending, 30) == {f"row/{later.statement_id}": b"30"}
    assert waiting.result.evaluation is None and plain.result.done()


def test_operations_of_a_discarded_epoch_are_those_of_the_epoch_in_which_the_statement_is_sent_again():
    sender = Recording()
    statement = sender.placed(20)
    assert puts(sender.pending, 20)                 # of a commit that failed
    assert numbers(sender.recover(committed=10, upto=20)) == [statement.statement_id]
    assert sender.pending.sent(statement.statement_id, 40) is None
    assert puts(sender.pending, 30) == {}
    assert puts(sender.pending, 40) == {f"row/{statement.statement_id}": b"40"}
    sender.pending.committed(40)
    assert puts(sender.pending, 50) == {}


def test_a_committed_statement_brings_its_operations_once_although_the_answer_was_lost():
    sender = Recording()
    sender.placed(20)
    assert puts(sender.pending, 20)
    assert sender.recover(committed=20, upto=30) == []
    assert puts(sender.pending, 40) == {}


def test_a_commit_waits_for_the_epoch_of_an_evaluated_statement():
    sender, found = Recording(), []
    statement = sender.begun()
    sender.evaluate(statement)
    thread = threading.Thread(target=lambda: found.append(puts(sender.pending, 20)))
    thread.start()
    thread.join(0.1)
    assert thread.is_alive()
    assert sender.pending.sent(statement.statement_id, 20) is None
    thread.join(SOON)
    assert found == [{f"row/{statement.statement_id}": b"20"}]


def test_a_commit_does_not_wait_for_ever(monkeypatch):
    monkeypatch.setattr(pending_statements, "MAX_SENDING_SECONDS", 0.01)
    sender = Recording()
    sender.evaluate(sender.begun())
    with pytest.raises(TimeoutError):
        sender.pending.operations(20)


def test_a_lost_statement_with_operations_is_not_reported_to_other_callers():
    sender = Recording()
    statement = sender.placed(20)
    (again,) = sender.recover(committed=10, upto=20)
    sender.pending.lose(again)
    assert sender.pending.take_lost() == () and puts(sender.pending, 40) == {}
    assert statement.result.result() == 1
