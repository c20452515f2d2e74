from stream.executor.backfill_pace import FIRST_ROWS, LEAST_ROWS, MOST_ROWS, TARGET_SECONDS, BackfillPace


class Job:
    def __init__(self):
        self.now, self.asked = 0.0, 0
        self.pace = BackfillPace(self.ask, lambda: self.now)
        self.epoch = 1

    def ask(self):
        self.asked += 1

    def barrier(self, seconds):
        """A barrier that takes `seconds` to pass the job."""
        self.pace.begin(self.epoch)
        self.now += seconds
        self.pace.passed(self.epoch)
        self.epoch += 1


def test_a_slow_job_reads_less_and_a_quick_one_more():
    job = Job()
    job.barrier(0.0)
    assert job.pace._limit == FIRST_ROWS
    for _ in range(20):
        job.pace.read(job.pace._limit)
        job.barrier(2 * TARGET_SECONDS)
    assert job.pace._limit == LEAST_ROWS
    for _ in range(20):
        job.pace.read(job.pace._limit)
        job.barrier(TARGET_SECONDS / 10)
    assert job.pace._limit == MOST_ROWS


def test_a_job_that_read_less_than_its_share_keeps_it():
    job = Job()
    for _ in range(5):
        job.pace.read(10)
        job.barrier(0.0)
    assert job.pace._limit == FIRST_ROWS


def test_a_job_that_has_read_its_share_asks_for_a_barrier_once():
    job = Job()
    job.barrier(0.0)
    while job.pace.may_read():
        job.pace.read(LEAST_ROWS)
    job.pace.read(LEAST_ROWS)
    assert job.asked == 1
    job.barrier(0.0)
    assert job.pace.may_read()
