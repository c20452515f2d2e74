/* Counts what compiled modules ask of the interpreter: objects that are made, and takings of the GIL.

   Objects: the interpreter's object allocator is wrapped, and because floats, tuples, lists and dicts are mostly taken
   from free lists that no allocator sees, the calls that make them are counted as well. Such calls of a watched module
   are caught in its global offset table, which the loader has filled by then. A float is counted twice where its free
   list is empty: counts are compared with each other, and are no inventory.

   Objects are counted on the thread that is armed or on all, takings of the GIL on all. Hooks pass arguments on as six words, as
   the calling conventions of x86-64 and AArch64 allow for functions without floating point or variable arguments. */

#define _GNU_SOURCE
#include <Python.h>
#include <link.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static __thread int armed;
static __thread long long made;
static atomic_int everywhere;
static atomic_llong made_everywhere, taken;

static inline void count_object(void)
{
    made += armed;
    if (atomic_load_explicit(&everywhere, memory_order_relaxed))
        atomic_fetch_add_explicit(&made_everywhere, 1, memory_order_relaxed);
}

typedef void *(*Words)(void *, void *, void *, void *, void *, void *);

#define MAKERS(X) \
    X(PyLong_FromLong) X(PyLong_FromLongLong) X(PyLong_FromUnsignedLong) X(PyLong_FromUnsignedLongLong) \
    X(PyLong_FromSsize_t) X(PyLong_FromSize_t) X(PyBytes_FromStringAndSize) X(PyBytes_FromString) \
    X(PyUnicode_FromStringAndSize) X(PyUnicode_DecodeUTF8) X(PyTuple_New) X(PyList_New) X(PyList_AsTuple) \
    X(PyDict_New) X(PyDict_Copy) X(PySet_New) X(PySlice_New) X(PyMemoryView_FromObject) X(PyObject_Call) \
    X(PyObject_Vectorcall) X(PyObject_VectorcallMethod) X(PyObject_VectorcallDict) X(PySequence_List) \
    X(PySequence_Tuple) X(PyNumber_Add) X(PyNumber_Subtract) X(PyNumber_Multiply) X(PyObject_Format)
#define TAKERS(X) X(PyGILState_Ensure) X(PyEval_RestoreThread) X(PyEval_AcquireThread)

#define MAKER(name) \
    static void *hook_##name(void *a, void *b, void *c, void *d, void *e, void *f) \
    { count_object(); return ((Words)(void *)name)(a, b, c, d, e, f); }
#define TAKER(name) \
    static void *hook_##name(void *a, void *b, void *c, void *d, void *e, void *f) \
    { atomic_fetch_add(&taken, 1); return ((Words)(void *)name)(a, b, c, d, e, f); }
MAKERS(MAKER)
TAKERS(TAKER)

static PyObject *hook_PyFloat_FromDouble(double value)
{
    count_object();
    return PyFloat_FromDouble(value);
}

#define ROW(name) {#name, (void *)hook_##name},
static const struct { const char *name; void *hook; } HOOKS[] = {
    MAKERS(ROW) TAKERS(ROW) {"PyFloat_FromDouble", (void *)hook_PyFloat_FromDouble}
};

static PyMemAllocatorEx real;

static void *counted_malloc(void *context, size_t size) { count_object(); return real.malloc(real.ctx, size); }
static void *counted_calloc(void *context, size_t count, size_t size)
{
    count_object();
    return real.calloc(real.ctx, count, size);
}
static void *counted_realloc(void *context, void *old, size_t size)
{
    if (old == NULL)
        count_object();
    return real.realloc(real.ctx, old, size);
}
static void counted_free(void *context, void *old) { real.free(real.ctx, old); }

/* From here on what this thread makes is counted, or what all do, until disarm, which returns how much it was. */
void arm(int all)
{
    PyMemAllocatorEx counting = {NULL, counted_malloc, counted_calloc, counted_realloc, counted_free};
    PyMem_GetAllocator(PYMEM_DOMAIN_OBJ, &real);
    PyMem_SetAllocator(PYMEM_DOMAIN_OBJ, &counting);
    made = 0;
    atomic_store(&made_everywhere, 0);
    armed = !all;
    atomic_store(&everywhere, all);
}

long long disarm(void)
{
    int all = atomic_exchange(&everywhere, 0);
    armed = 0;
    PyMem_SetAllocator(PYMEM_DOMAIN_OBJ, &real);
    return all ? atomic_load(&made_everywhere) : made;
}

long long takings(void) { return atomic_load(&taken); }

static void *hook_of(const char *name)
{
    for (size_t at = 0; at < sizeof HOOKS / sizeof *HOOKS; at++)
        if (strcmp(name, HOOKS[at].name) == 0)
            return HOOKS[at].hook;
    return NULL;
}

static void let_write(void *slot)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), start = (uintptr_t)slot & ~(page - 1);
    mprotect((void *)start, page, PROT_READ | PROT_WRITE);
}

static int hook_all(const ElfW(Rela) *first, size_t bytes, uintptr_t base, const ElfW(Sym) *symbols, const char *names)
{
    int hooked = 0;
    for (const ElfW(Rela) *each = first; (const char *)each < (const char *)first + bytes; each++) {
        size_t symbol = ELF64_R_SYM(each->r_info);
        void *hook = symbol ? hook_of(names + symbols[symbol].st_name) : NULL;
        if (hook == NULL)
            continue;
        void **slot = (void **)(base + each->r_offset);
        let_write(slot);
        *slot = hook;
        hooked++;
    }
    return hooked;
}

static int hook_module(struct dl_phdr_info *info, size_t size, void *wanted)
{
    if (strcmp(info->dlpi_name, (const char *)wanted) != 0)
        return 0;
    uintptr_t base = info->dlpi_addr, tables[2] = {0, 0}, bytes[2] = {0, 0};
    const ElfW(Sym) *symbols = NULL;
    const char *names = NULL;
    for (int at = 0; at < info->dlpi_phnum; at++) {
        if (info->dlpi_phdr[at].p_type != PT_DYNAMIC)
            continue;
        for (const ElfW(Dyn) *each = (void *)(base + info->dlpi_phdr[at].p_vaddr); each->d_tag != DT_NULL; each++) {
            if (each->d_tag == DT_SYMTAB) symbols = (void *)each->d_un.d_ptr;
            if (each->d_tag == DT_STRTAB) names = (void *)each->d_un.d_ptr;
            if (each->d_tag == DT_RELA) tables[0] = each->d_un.d_ptr;
            if (each->d_tag == DT_RELASZ) bytes[0] = each->d_un.d_val;
            if (each->d_tag == DT_JMPREL) tables[1] = each->d_un.d_ptr;
            if (each->d_tag == DT_PLTRELSZ) bytes[1] = each->d_un.d_val;
        }
    }
    int hooked = 0;
    for (int at = 0; at < 2 && symbols && names; at++)
        if (tables[at])
            hooked += hook_all((void *)tables[at], bytes[at], base, symbols, names);
    return hooked + 1;
}

/* How many calls of the loaded module at `path` are watched from here on; -1: no such module is loaded. */
int watch(const char *path) { return dl_iterate_phdr(hook_module, (void *)path) - 1; }
