#include "client/origin.h"

#include <sys/mman.h>
#include <unistd.h>

enum { MARK_SIZE = 1, HERE = 1 }; /* the kernel makes a page of it */

int origin_init(struct origin *origin)
{
    *origin = (struct origin){.pid = getpid()};
    void *page = mmap(NULL, MARK_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) return -1;
    if (madvise(page, MARK_SIZE, MADV_WIPEONFORK) != 0) {
        munmap(page, MARK_SIZE);
        return 0;
    }
    origin->mark = page;
    origin_move_here(origin);
    return 0;
}

void origin_fini(struct origin *origin)
{
    if (origin->mark != NULL) munmap(origin->mark, MARK_SIZE);
    origin->mark = NULL;
}

bool origin_is_here(const struct origin *origin)
{
    return origin->mark != NULL ? *origin->mark == HERE : origin->pid == getpid();
}

void origin_move_here(struct origin *origin)
{
    if (origin->mark != NULL) *origin->mark = HERE;
    origin->pid = getpid();
}
