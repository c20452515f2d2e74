/* Fails a chosen allocation of our compiled modules, and counts the memory that they hold.

   Preloaded. An allocation is ours if it is called from a library below hummock/ or relational/; those of the
   interpreter and of other libraries are passed on. Between `arm(n)` and `disarm` our allocation number n, from 0,
   fails, on any thread. Anonymous mappings count as allocations, of any length, but are not part of what is held. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>

extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);
extern void __libc_free(void *);

static atomic_int watching, failed;
static atomic_llong left, made, freed;

static int is_ours(void *caller)
{
    Dl_info info;
    return dladdr(caller, &info) && info.dli_fname
        && (strstr(info.dli_fname, "/hummock/") || strstr(info.dli_fname, "/relational/"));
}

static int fails(void *caller)
{
    if (!atomic_load(&watching) || !is_ours(caller))
        return 0;
    if (atomic_fetch_sub(&left, 1) != 0)
        return 0;
    atomic_store(&failed, 1);
    errno = ENOMEM;
    return 1;
}

static void *counted(void *memory, void *caller)
{
    if (memory && atomic_load(&watching) && is_ours(caller))
        atomic_fetch_add(&made, 1);
    return memory;
}

void *malloc(size_t size)
{
    void *caller = __builtin_return_address(0);
    return fails(caller) ? NULL : counted(__libc_malloc(size), caller);
}

void *calloc(size_t count, size_t size)
{
    void *caller = __builtin_return_address(0);
    return fails(caller) ? NULL : counted(__libc_calloc(count, size), caller);
}

void *realloc(void *memory, size_t size)
{
    void *caller = __builtin_return_address(0);
    if (fails(caller))
        return NULL;
    void *found = __libc_realloc(memory, size);
    return memory ? found : counted(found, caller);
}

int posix_memalign(void **memory, size_t alignment, size_t size)
{
    void *caller = __builtin_return_address(0);
    if (fails(caller))
        return ENOMEM;
    *memory = counted(__libc_memalign(alignment, size), caller);
    return *memory ? 0 : ENOMEM;
}

#define MAPS(name)                                                                                        \
    void *name(void *address, size_t length, int protection, int flags, int fd, off_t offset)             \
    {                                                                                                     \
        static void *(*next)(void *, size_t, int, int, int, off_t);                                       \
        if (!next)                                                                                        \
            next = (void *(*)(void *, size_t, int, int, int, off_t))dlsym(RTLD_NEXT, #name);              \
        return flags & MAP_ANONYMOUS && fails(__builtin_return_address(0))                                \
            ? MAP_FAILED : next(address, length, protection, flags, fd, offset);                          \
    }

MAPS(mmap)
MAPS(mmap64)

void free(void *memory)
{
    if (memory && atomic_load(&watching) && is_ours(__builtin_return_address(0)))
        atomic_fetch_add(&freed, 1);
    __libc_free(memory);
}

void arm(long long number)
{
    atomic_store(&left, number);
    atomic_store(&failed, 0);
    atomic_store(&made, 0);
    atomic_store(&freed, 0);
    atomic_store(&watching, 1);
}

/* Ends what `arm` began; whether the allocation was reached. */
int disarm(void)
{
    atomic_store(&watching, 0);
    return atomic_load(&failed);
}

/* Allocations since `arm` that are not freed: negative if older ones were freed too. */
long long held(void)
{
    return atomic_load(&made) - atomic_load(&freed);
}
