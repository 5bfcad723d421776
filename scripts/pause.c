/* The pause container: holds a pod's namespaces and reaps what is re-parented to it, as process 1
 * of a shared PID namespace. Ends at once when asked to, with code 0. */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static void end(int signal_number) {
    (void)signal_number;
    _exit(0);
}

static void reap(int signal_number) {
    (void)signal_number;
    while (waitpid(-1, NULL, WNOHANG) > 0) {
    }
}

int main(void) {
    /* Process 1 gets no signal without a handler, so each is named. */
    struct sigaction on_end = {.sa_handler = end};
    struct sigaction on_child = {.sa_handler = reap, .sa_flags = SA_NOCLDSTOP};
    sigaction(SIGTERM, &on_end, NULL);
    sigaction(SIGINT, &on_end, NULL);
    sigaction(SIGCHLD, &on_child, NULL);
    for (;;) {
        pause();
    }
}
