/* Prints the effective user of whoever runs it: with the set-user-ID bit, that of its owner. */
#include <stdio.h>
#include <unistd.h>

int main(void)
{
    printf("Effective uid: %u\n", (unsigned)geteuid());
    return 0;
}
