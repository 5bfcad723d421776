/*
 * UDP for the conformance cases, since busybox's nc has none:
 *   udp serve PORT          answers each datagram with the host's name
 *   udp ask ADDRESS PORT    sends one, prints the answer; fails after 2 s
 */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

static int fail(const char *what)
{
    perror(what);
    return 1;
}

static int serve(int fd, struct sockaddr_in *at)
{
    char name[256] = "";
    char byte;

    gethostname(name, sizeof name - 1);
    if (bind(fd, (struct sockaddr *)at, sizeof *at) != 0)
        return fail("bind");
    for (;;) {
        struct sockaddr_in from;
        socklen_t length = sizeof from;

        if (recvfrom(fd, &byte, 1, 0, (struct sockaddr *)&from, &length) < 0)
            return fail("recvfrom");
        sendto(fd, name, strlen(name), 0, (struct sockaddr *)&from, length);
    }
}

static int ask(int fd, struct sockaddr_in *to)
{
    struct timeval patience = { .tv_sec = 2 };
    char answer[256];
    ssize_t length;

    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    if (sendto(fd, "?", 1, 0, (struct sockaddr *)to, sizeof *to) < 0)
        return fail("sendto");
    length = recv(fd, answer, sizeof answer, 0);
    if (length < 0)
        return fail("recv");
    printf("%.*s\n", (int)length, answer);
    return 0;
}

int main(int argc, char **argv)
{
    struct sockaddr_in address = { .sin_family = AF_INET };
    int fd = socket(AF_INET, SOCK_DGRAM, 0);

    if (fd < 0)
        return fail("socket");
    if (argc == 3 && strcmp(argv[1], "serve") == 0) {
        address.sin_port = htons((unsigned short)atoi(argv[2]));
        return serve(fd, &address);
    }
    if (argc == 4 && strcmp(argv[1], "ask") == 0) {
        address.sin_port = htons((unsigned short)atoi(argv[3]));
        if (inet_pton(AF_INET, argv[2], &address.sin_addr) == 1)
            return ask(fd, &address);
    }
    fprintf(stderr, "udp serve PORT | udp ask ADDRESS PORT\n");
    return 2;
}
