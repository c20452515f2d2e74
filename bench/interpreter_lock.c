/* Which share of a process's CPU time is spent by threads that hold the interpreter's lock: a signal for each tick of
 * its CPU time, handled by the thread that used it. */

#include <Python.h>
#include <signal.h>
#include <string.h>
#include <sys/time.h>

static volatile long ticks, held;

static void count(int signal)
{
    (void)signal;
    __sync_fetch_and_add(&ticks, 1);
    if (PyGILState_Check())
        __sync_fetch_and_add(&held, 1);
}

static void every(long microseconds)
{
    struct itimerval timer = {{0, microseconds}, {0, microseconds}};
    setitimer(ITIMER_PROF, &timer, NULL);
}

void begin(long microseconds)
{
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = count;
    action.sa_flags = SA_RESTART;
    sigaction(SIGPROF, &action, NULL);
    ticks = held = 0;
    every(microseconds);
}

void end(long *out)
{
    every(0);
    out[0] = ticks;
    out[1] = held;
}
