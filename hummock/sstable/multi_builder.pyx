"""MultiSstableBuilder: builds a sorted run of files from entries in full key order, split by size and at borders.

Files are split between user keys only: all versions of a key are in one file, so no two files of a sorted run share a
key. With a serving thread the writer does not wait for the GIL at the end of a file: the serving thread begins each
file ahead and finishes it while the next one fills.
"""

from libc.stdint cimport uint64_t
from libc.stdlib cimport free, malloc

from hummock.base.key cimport NOWHERE
from hummock.base.posix cimport (
    pthread_cond_broadcast,
    pthread_cond_destroy,
    pthread_cond_init,
    pthread_cond_wait,
    pthread_mutex_destroy,
    pthread_mutex_init,
    pthread_mutex_lock,
    pthread_mutex_unlock,
)
from hummock.iterator.base cimport Entry
from hummock.sstable.builder cimport SstableBuilder, fill_entry

from hummock.errors import without_frames
from hummock.sstable.filter.policy import FilterPolicy


cdef class MultiSstableBuilder:
    """Builds a sorted run; `finish` returns its files in key order, none of them empty.

    `borders`: (table id, vnode) pairs; no file spans one. `data_bytes`: as in SstableBuilder. `sink_of(name)` returns
    the PartSink that receives that file's parts as they fill. `is_served`: a thread calls `serve`; `add` and `finish`
    raise that thread's error.
    """

    def __cinit__(self, options, policy: FilterPolicy, name_source, dict prefix_rules=None, borders=(),
                  Py_ssize_t data_bytes=0, sink_of=None, bint is_served=False):
        self.options, self.policy, self.name_source = options, policy, name_source
        self.prefix_rules, self.sstable_bytes = prefix_rules or {}, options.sstable_bytes
        self.outputs, self.data_bytes, self.sink_of = [], data_bytes, sink_of
        self.begun, self.is_served = [], is_served
        pthread_mutex_init(&self.lock, NULL)
        pthread_cond_init(&self.changed, NULL)
        boundaries = sorted({table_id << 16 | vnode for table_id, vnode in borders})
        self.borders = <uint64_t*>malloc(sizeof(uint64_t) * (len(boundaries) + 1))
        if self.borders == NULL:
            raise MemoryError
        for boundary in boundaries:
            self.borders[self.border_count] = boundary
            self.border_count += 1
        self.next_border = self.borders[0] if self.border_count > 0 else NOWHERE

    def __dealloc__(self):
        free(self.borders)
        pthread_cond_destroy(&self.changed)
        pthread_mutex_destroy(&self.lock)

    cdef int add(self, const Entry* entry) except -1 nogil:
        if not self.is_open:
            self.pass_border(entry.high >> 16)
            self.roll(True)
        elif self.is_cut_before(entry):
            self.roll(True)
        return (<SstableBuilder>self.current).add(entry)

    cdef bint is_cut_before(self, const Entry* entry) noexcept nogil:
        if entry.high >> 16 >= self.next_border:
            self.pass_border(entry.high >> 16)
            return (<SstableBuilder>self.current).order_of(entry) < 0
        if (<SstableBuilder>self.current).bytes_so_far() < self.sstable_bytes:
            return False
        return (<SstableBuilder>self.current).order_of(entry) < 0

    cdef void pass_border(self, uint64_t boundary) noexcept nogil:
        """Sets `next_border` to the first border behind `boundary`."""
        cdef Py_ssize_t at = 0
        while at < self.border_count and self.borders[at] <= boundary:
            at += 1
        self.next_border = self.borders[at] if at < self.border_count else NOWHERE

    cdef int roll(self, bint open_next) except -1 nogil:
        cdef void* built = self.current
        if self.is_open:
            self.current, self.is_open = NULL, False
            if self.is_served:
                self.hand_on(built)
            else:
                with gil:
                    self.end_file(built)
        if open_next:
            if self.spare == NULL and not self.is_served:
                with gil:
                    self.begin_spare()
            self.next_builder()
            self.is_open = True
        return 0

    cdef int hand_on(self, void* built) except -1 nogil:
        """Blocks while another full file is waiting: at most one does."""
        (<SstableBuilder>built).end_rows()
        pthread_mutex_lock(&self.lock)
        while self.built != NULL and not self.has_failed:
            pthread_cond_wait(&self.changed, &self.lock)
        self.built = built
        pthread_cond_broadcast(&self.changed)
        pthread_mutex_unlock(&self.lock)
        return self.check_served()

    cdef int next_builder(self) except -1 nogil:
        pthread_mutex_lock(&self.lock)
        while self.spare == NULL and not self.has_failed:
            pthread_cond_wait(&self.changed, &self.lock)
        self.current, self.spare = self.spare, NULL
        pthread_cond_broadcast(&self.changed)
        pthread_mutex_unlock(&self.lock)
        self.check_served()
        return (<SstableBuilder>self.current).begin()

    cdef int check_served(self) except -1 nogil:
        if self.has_failed:
            with gil:
                raise self.error
        return 0

    cdef bint wait_for_work(self) noexcept nogil:
        cdef bint is_work
        pthread_mutex_lock(&self.lock)
        while self.spare != NULL and self.built == NULL and not self.is_over:
            pthread_cond_wait(&self.changed, &self.lock)
        is_work = not self.is_over
        pthread_mutex_unlock(&self.lock)
        return is_work

    cdef int begin_spare(self) except -1:
        cdef SstableBuilder made
        name = self.name_source()
        made = SstableBuilder(self.options, self.policy, name, self.prefix_rules, self.data_bytes,
                              None if self.sink_of is None else self.sink_of(name))
        self.begun.append(made)
        pthread_mutex_lock(&self.lock)
        self.spare = <void*>made
        pthread_cond_broadcast(&self.changed)
        pthread_mutex_unlock(&self.lock)
        return 0

    cdef int end_file(self, void* built) except -1:
        """Finishes the file and passes on its output."""
        cdef SstableBuilder held = <SstableBuilder>built
        self.begun.remove(held)
        output = held.finish()
        held = None                     # the output alone owns its memory now
        if self.taker is None:
            self.outputs.append(output)
        else:
            self.taker(output)
        return 0

    def prepare(self) -> None:
        """Begins a file ahead. REQUIRES that no thread serves yet."""
        if self.spare == NULL:
            self.begin_spare()

    def serve(self) -> None:
        """Begins files ahead and finishes full ones, until `stop`; for one thread."""
        cdef void* built
        while True:
            with nogil:
                is_work = self.wait_for_work()
            if not is_work:
                return
            try:
                if self.spare == NULL:
                    self.begin_spare()
                built = self.pop_built()
                if built != NULL:
                    self.end_file(built)
                    self.note_ended()
            except BaseException as error:      # raised by the writing thread
                self.fail(without_frames(error).with_traceback(None))
                return

    cdef int end_all(self) except -1 nogil:
        self.roll(False)
        self.wait_until_ended()
        self.next_border = self.borders[0] if self.border_count > 0 else NOWHERE
        return self.check_served()

    cdef void* pop_built(self) noexcept nogil:
        cdef void* built
        pthread_mutex_lock(&self.lock)
        built, self.built = self.built, NULL
        self.is_ending = built != NULL
        pthread_cond_broadcast(&self.changed)
        pthread_mutex_unlock(&self.lock)
        return built

    cdef void note_ended(self) noexcept nogil:
        pthread_mutex_lock(&self.lock)
        self.is_ending = False
        pthread_cond_broadcast(&self.changed)
        pthread_mutex_unlock(&self.lock)

    cdef void wait_until_ended(self) noexcept nogil:
        """Blocks until the serving thread has finished all files or failed."""
        pthread_mutex_lock(&self.lock)
        while (self.built != NULL or self.is_ending) and not self.has_failed:
            pthread_cond_wait(&self.changed, &self.lock)
        pthread_mutex_unlock(&self.lock)

    cdef fail(self, error):
        self.error = error
        self.sstable_bytes = 0          # makes the next user key roll, which raises the error
        pthread_mutex_lock(&self.lock)
        self.has_failed = True
        pthread_cond_broadcast(&self.changed)
        pthread_mutex_unlock(&self.lock)

    def stop(self) -> None:
        """Ends `serve`. Idempotent."""
        pthread_mutex_lock(&self.lock)
        self.is_over = True
        pthread_cond_broadcast(&self.changed)
        pthread_mutex_unlock(&self.lock)

    def put(self, bytes user_key, uint64_t epoch, value) -> None:
        """Adds one entry; `value` None is a tombstone. ValueError unless its full key is after all previous ones."""
        cdef bytes held = value if value is not None else b""
        cdef Entry entry
        fill_entry(&entry, user_key, epoch, held, value is None)
        with nogil:                     # sending a part may block
            self.add(&entry)

    def send_outputs_to(self, taker) -> None:
        """Calls `taker(output)` for each file finished from now on; None: keeps the files."""
        self.taker = taker

    def pop_outputs(self) -> list:
        """Returns and forgets the files finished since the last call, for upload while the next one is built."""
        taken, self.outputs = self.outputs, []
        return taken

    def finish(self) -> list:
        """Finishes the current file; returns all files not taken yet. Further entries begin a new run."""
        with nogil:
            self.end_all()
        return self.pop_outputs()
