import threading
from concurrent.futures import Future

import pytest

from stream.errors import StatementsLost
from stream.worker.statement_ledger import StatementLedger

SOON = 30.0


def answered(rows=1):
    result = Future()
    result.set_result(rows)
    return result


def test_acknowledged_statements_of_a_discarded_epoch_are_named_once():
    ledger = StatementLedger()
    for statement_id, epoch in ((1, 10), (2, 20), (3, 20), (4, 30)):
        ledger.place(statement_id, answered(), epoch)
    ledger.committed(10)
    ledger.discard(after=10, upto=20)
    assert ledger.take_lost() == (2, 3)
    assert ledger.take_lost() == ()


def test_a_committed_statement_is_never_lost():
    ledger = StatementLedger()
    ledger.place(1, answered(), 10)
    ledger.committed(10)
    ledger.discard(after=10, upto=40)
    ledger.place(2, answered(), 50)
    ledger.committed(50)
    assert ledger.take_lost() == ()


def test_who_waits_for_an_answer_gets_the_loss_as_the_answer():
    ledger, waiting = StatementLedger(), Future()
    ledger.place(1, waiting, 20)
    ledger.discard(after=10, upto=20)
    with pytest.raises(StatementsLost) as raised:
        waiting.result(SOON)
    assert raised.value.statement_ids == (1,)
    assert ledger.take_lost() == ()


def test_a_statement_that_failed_by_itself_is_not_lost():
    ledger, failed = StatementLedger(), Future()
    failed.set_exception(ValueError("duplicate"))
    ledger.place(1, failed, 20)
    ledger.discard(after=10, upto=20)
    assert ledger.take_lost() == ()


def test_a_statement_sent_while_a_recovery_ran_is_judged_by_its_epoch():
    ledger = StatementLedger()
    ledger.committed(10)
    ledger.discard(after=10, upto=20)
    with pytest.raises(StatementsLost):
        ledger.place(1, answered(), 20)
    ledger.place(2, answered(), 30)
    ledger.place(3, answered(), 10)


def test_too_many_uncommitted_statements_wait_for_a_commit():
    ledger = StatementLedger(max_uncommitted=2)
    ledger.place(1, answered(), 10)
    ledger.place(2, answered(), 10)
    sender = threading.Thread(target=ledger.place, args=(3, answered(), 20), daemon=True)
    sender.start()
    sender.join(0.05)
    assert sender.is_alive()
    ledger.committed(10)
    sender.join(SOON)
    assert not sender.is_alive()
