/* Shared memory: `shm make` makes a segment, prints its id, and removes it when it is told to end;
 * `shm has ID` succeeds where there is one of that id. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/shm.h>
#include <unistd.h>

static volatile sig_atomic_t told;

static void end(int signal) {
    (void)signal;
    told = 1;
}

int main(int argc, char **argv) {
    struct shmid_ds state;

    if (argc == 3 && strcmp(argv[1], "has") == 0)
        return shmctl(atoi(argv[2]), IPC_STAT, &state) == 0 ? 0 : 1;
    struct sigaction action = {.sa_handler = end};
    sigaction(SIGTERM, &action, NULL);
    int id = shmget(IPC_PRIVATE, 4096, IPC_CREAT | 0600);
    if (id < 0) {
        perror("shmget");
        return 1;
    }
    printf("%d\n", id);
    fflush(stdout);
    while (!told)
        pause();
    return shmctl(id, IPC_RMID, NULL) == 0 ? 0 : 1;
}
