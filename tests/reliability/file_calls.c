/* Preloaded: sees every call that changes files below one directory, in Python, SQLite and compiled modules alike.

   Once armed it counts those calls, one at a time whatever the thread, and does one of three things:

   - at call number `at` the process dies as by `kill -9`: BEFORE the call, AFTER it, or TORN, when the first half
     of a write has reached the file (a call that is no write dies before);
   - it journals every call with its bytes, so that the disk may be rebuilt as of any call;
   - calls `at` to `at + times - 1` fail with an error number, a write after its first half. Then calls that read a
     file or open one to read it are counted too, and may fail.

   A journal record is six int64 (kind, inode, offset, bytes of first path, of second path, of data), then the
   three strings. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum kind { CREATE = 1, WRITE, TRUNCATE, SYNC, RENAME, LINK, UNLINK, MKDIR, RMDIR, NOTE, READ, OPEN };
enum when { BEFORE, TORN, AFTER };
enum fate { GOES_ON, TEARS, FAILS };
static const char letter_of[] = " cwtsrlumdnRO";

static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;
static char root[4096];
static size_t root_size;            /* 0: not armed */
static long calls, kill_at;
static char letters[1 << 16];       /* of each call counted, the letter of its kind; a string */
static int kill_when, journal = -1;
static int fail_number;             /* 0: no call fails, and reads are not counted */
static long fail_times;

#define REAL(name) ((__typeof__(&name))real(#name))

static void *real(const char *name)
{
    void *found = dlsym(RTLD_NEXT, name);
    if (found == NULL) {
        static const char message[] = "file_calls: a call has no original\n";
        syscall(SYS_write, 2, message, sizeof message - 1);
        raise(SIGABRT);
    }
    return found;
}

static int below(const char *path)
{
    return root_size && strncmp(path, root, root_size) == 0 && (path[root_size] == '/' || path[root_size] == 0);
}

/* Whether a descriptor's file is below the root; its path goes to `path`. */
static int watched(int fd, char *path)
{
    char link[64];
    ssize_t size;
    int kept = errno;
    if (root_size == 0)
        return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    size = readlink(link, path, 4095);
    errno = kept;
    if (size <= 0)
        return 0;
    path[size] = 0;
    return below(path);
}

static void die(void)
{
    syscall(SYS_kill, syscall(SYS_getpid), SIGKILL);
    for (;;)
        pause();
}

static void put(const void *data, size_t size)
{
    while (size) {
        ssize_t done = syscall(SYS_write, journal, data, size);
        if (done <= 0)
            die();
        data = (const char *)data + done;
        size -= done;
    }
}

static void record(enum kind kind, int64_t inode, int64_t offset, const char *first, const char *second,
                   const void *data, size_t size)
{
    int64_t head[6] = {kind, inode, offset, strlen(first), strlen(second), size};
    if (journal < 0)
        return;
    put(head, sizeof head);
    put(first, head[3]);
    put(second, head[4]);
    put(data, size);
}

/* Takes the lock and counts; dies here if this is the call and its time is before. FAILS: the lock was given back. */
static enum fate enter(enum kind kind)
{
    int mine, is_write = kind == WRITE;
    pthread_mutex_lock(&one_at_a_time);
    if (calls < (long)sizeof letters - 1)
        letters[calls] = letter_of[kind];
    mine = ++calls == kill_at;
    if (fail_number) {
        if (calls < kill_at || calls >= kill_at + fail_times)
            return GOES_ON;
        pthread_mutex_unlock(&one_at_a_time);
        errno = fail_number;
        return FAILS;
    }
    if (mine && (kill_when == BEFORE || (kill_when == TORN && !is_write)))
        die();
    return mine && kill_when == TORN ? TEARS : GOES_ON;
}

static void leave(void)
{
    if (calls == kill_at && !fail_number)
        die();
    pthread_mutex_unlock(&one_at_a_time);
}

static int64_t inode_of(int fd)
{
    struct stat status;
    return fstat(fd, &status) == 0 ? (int64_t)status.st_ino : -1;
}

/* -- what tests call --------------------------------------------------------------------------------------- */

void file_calls_arm(const char *below_this, long at, int when, int journal_descriptor)
{
    calls = 0;
    memset(letters, 0, sizeof letters);
    kill_at = at;
    kill_when = when;
    journal = journal_descriptor;
    strncpy(root, below_this, sizeof root - 1);
    fail_number = 0;
    root_size = strlen(root);
}

/* From call `at` on so many calls fail. */
void file_calls_fail(const char *below_this, long at, int number, long times)
{
    file_calls_arm(below_this, at, BEFORE, -1);
    fail_times = times;
    fail_number = number;
}

/* The letter of each call made since: create, write, truncate, sync, rename, link, unlink, mkdir, d for rmdir; where
   calls fail also R for reads and O for what is opened to be read. */
const char *file_calls_disarm(void)
{
    root_size = 0;
    return letters;
}

void file_calls_note(const char *text)
{
    pthread_mutex_lock(&one_at_a_time);
    if (root_size)
        record(NOTE, 0, 0, text, "", "", 0);
    pthread_mutex_unlock(&one_at_a_time);
}

/* -- descriptors -------------------------------------------------------------------------------------------- */

static ssize_t watched_write(int fd, const void *data, size_t size, off64_t offset, int is_positioned)
{
    ssize_t done;
    enum fate fate = enter(WRITE);
    size_t wanted = fate == GOES_ON ? size : size / 2;
    off64_t at = offset;
    if (!is_positioned) {
        struct stat status;
        int appends = fcntl(fd, F_GETFL) & O_APPEND;
        at = appends && fstat(fd, &status) == 0 ? status.st_size : lseek64(fd, 0, SEEK_CUR);
    }
    done = is_positioned ? syscall(SYS_pwrite64, fd, data, wanted, offset) : syscall(SYS_write, fd, data, wanted);
    if (fate == TEARS)
        die();
    if (fate == FAILS) {
        errno = fail_number;
        return -1;
    }
    if (done > 0)
        record(WRITE, inode_of(fd), at, "", "", data, done);
    leave();
    return done;
}

ssize_t write(int fd, const void *data, size_t size)
{
    char path[4096];
    return watched(fd, path) ? watched_write(fd, data, size, 0, 0) : syscall(SYS_write, fd, data, size);
}

ssize_t pwrite64(int fd, const void *data, size_t size, off64_t offset)
{
    char path[4096];
    return watched(fd, path) ? watched_write(fd, data, size, offset, 1)
                             : syscall(SYS_pwrite64, fd, data, size, offset);
}

ssize_t pwrite(int fd, const void *data, size_t size, off_t offset) { return pwrite64(fd, data, size, offset); }

/* A short write is legal: the first part alone is written where the file is watched. */
ssize_t writev(int fd, const struct iovec *parts, int count)
{
    char path[4096];
    int part = 0;
    if (!watched(fd, path))
        return syscall(SYS_writev, fd, parts, count);
    while (part + 1 < count && parts[part].iov_len == 0)
        part++;
    return count ? watched_write(fd, parts[part].iov_base, parts[part].iov_len, 0, 0) : 0;
}

ssize_t pwritev64(int fd, const struct iovec *parts, int count, off64_t offset)
{
    char path[4096];
    int part = 0;
    if (!watched(fd, path))
        return REAL(pwritev64)(fd, parts, count, offset);
    while (part + 1 < count && parts[part].iov_len == 0)
        part++;
    return count ? watched_write(fd, parts[part].iov_base, parts[part].iov_len, offset, 1) : 0;
}

int ftruncate64(int fd, off64_t size)
{
    char path[4096];
    int answer;
    if (!watched(fd, path))
        return syscall(SYS_ftruncate, fd, size);
    if (enter(TRUNCATE) == FAILS)
        return -1;
    answer = syscall(SYS_ftruncate, fd, size);
    if (answer == 0)
        record(TRUNCATE, inode_of(fd), size, "", "", "", 0);
    leave();
    return answer;
}

int ftruncate(int fd, off_t size) { return ftruncate64(fd, size); }

static int watched_sync(int fd, int number)
{
    char path[4096];
    int answer;
    if (!watched(fd, path))
        return syscall(number, fd);
    if (enter(SYNC) == FAILS)
        return -1;
    answer = syscall(number, fd);
    if (answer == 0)
        record(SYNC, inode_of(fd), 0, path, "", "", 0);
    leave();
    return answer;
}

int fsync(int fd) { return watched_sync(fd, SYS_fsync); }
int fdatasync(int fd) { return watched_sync(fd, SYS_fdatasync); }

/* Space alone: who asks for it falls back to writes where the file system has no such call. */
int posix_fallocate64(int fd, off64_t offset, off64_t size)
{
    char path[4096];
    return watched(fd, path) ? EOPNOTSUPP : REAL(posix_fallocate64)(fd, offset, size);
}

int posix_fallocate(int fd, off_t offset, off_t size) { return posix_fallocate64(fd, offset, size); }

ssize_t copy_file_range(int from, off64_t *from_at, int to, off64_t *to_at, size_t size, unsigned flags)
{
    char path[4096];
    if (watched(to, path)) {
        errno = EXDEV;
        return -1;
    }
    return syscall(SYS_copy_file_range, from, from_at, to, to_at, size, flags);
}

/* -- reads: counted only where calls may fail ---------------------------------------------------------------- */

/* Whether a read of the descriptor fails. */
static int read_fails(int fd)
{
    char path[4096];
    if (!fail_number || !watched(fd, path))
        return 0;
    if (enter(READ) == FAILS)
        return 1;
    leave();
    return 0;
}

ssize_t read(int fd, void *data, size_t size) { return read_fails(fd) ? -1 : syscall(SYS_read, fd, data, size); }

ssize_t pread64(int fd, void *data, size_t size, off64_t offset)
{
    return read_fails(fd) ? -1 : syscall(SYS_pread64, fd, data, size, offset);
}

ssize_t pread(int fd, void *data, size_t size, off_t offset) { return pread64(fd, data, size, offset); }

ssize_t preadv64(int fd, const struct iovec *parts, int count, off64_t offset)
{
    return read_fails(fd) ? -1 : REAL(preadv64)(fd, parts, count, offset);
}

ssize_t preadv(int fd, const struct iovec *parts, int count, off_t offset)
{
    return preadv64(fd, parts, count, offset);
}

ssize_t preadv64v2(int fd, const struct iovec *parts, int count, off64_t offset, int flags)
{
    return read_fails(fd) ? -1 : REAL(preadv64v2)(fd, parts, count, offset, flags);
}

ssize_t preadv2(int fd, const struct iovec *parts, int count, off_t offset, int flags)
{
    return preadv64v2(fd, parts, count, offset, flags);
}

/* -- names -------------------------------------------------------------------------------------------------- */

static int opened(int directory, const char *path, int flags, mode_t mode)
{
    struct stat status;
    int fd, is_new;
    if (below(path) && fail_number && !(flags & (O_CREAT | O_TRUNC))) {
        if (enter(OPEN) == FAILS)
            return -1;
        leave();
    }
    if (!below(path) || !(flags & (O_CREAT | O_TRUNC)))
        return syscall(SYS_openat, directory, path, flags | O_LARGEFILE, mode);
    is_new = lstat(path, &status) != 0;
    if (!is_new && !(flags & O_TRUNC))
        return syscall(SYS_openat, directory, path, flags | O_LARGEFILE, mode);
    if (enter(is_new ? CREATE : TRUNCATE) == FAILS)
        return -1;
    fd = syscall(SYS_openat, directory, path, flags | O_LARGEFILE, mode);
    if (fd >= 0)
        record(is_new ? CREATE : TRUNCATE, inode_of(fd), 0, path, "", "", 0);
    leave();
    return fd;
}

#define OPENER(name, directory_argument, directory)                  \
    int name(directory_argument const char *path, int flags, ...)  \
    {                                                              \
        mode_t mode = 0;                                           \
        if (flags & (O_CREAT | O_TMPFILE)) {                       \
            va_list rest;                                          \
            va_start(rest, flags);                                 \
            mode = va_arg(rest, mode_t);                           \
            va_end(rest);                                          \
        }                                                          \
        return opened(directory, path, flags, mode);               \
    }
#define AT int directory,
OPENER(open, , AT_FDCWD)
OPENER(open64, , AT_FDCWD)
OPENER(openat, AT, directory)
OPENER(openat64, AT, directory)

static int named(enum kind kind, const char *first, const char *second, int number, long a, long b, long c, long d)
{
    int answer;
    if (!below(first) && !below(second))
        return syscall(number, a, b, c, d);
    if (enter(kind) == FAILS)
        return -1;
    answer = syscall(number, a, b, c, d);
    if (answer == 0)
        record(kind, 0, 0, first, second, "", 0);
    leave();
    return answer;
}

int rename(const char *from, const char *to)
{
    return named(RENAME, from, to, SYS_rename, (long)from, (long)to, 0, 0);
}

int link(const char *from, const char *to) { return named(LINK, from, to, SYS_link, (long)from, (long)to, 0, 0); }

int linkat(int from_in, const char *from, int to_in, const char *to, int flags)
{
    if (!below(to))
        return syscall(SYS_linkat, from_in, from, to_in, to, flags);
    return link(from, to);
}

int unlink(const char *path) { return named(UNLINK, path, "", SYS_unlink, (long)path, 0, 0, 0); }

int unlinkat(int directory, const char *path, int flags)
{
    enum kind kind = flags & AT_REMOVEDIR ? RMDIR : UNLINK;
    return named(kind, path, "", SYS_unlinkat, directory, (long)path, flags, 0);
}

int remove(const char *path) { return unlink(path); }
int mkdir(const char *path, mode_t mode) { return named(MKDIR, path, "", SYS_mkdir, (long)path, mode, 0, 0); }
int rmdir(const char *path) { return named(RMDIR, path, "", SYS_rmdir, (long)path, 0, 0, 0); }
