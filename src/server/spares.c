#include "server/spares.h"

#include "base/check.h"

void spares_init(struct spares *spares)
{
    spares->n = spares->n_bytes = 0;
}

void spares_fini(struct spares *spares)
{
    while (spares->n > 0) buffer_fini(&spares->kept[--spares->n]);
    spares->n_bytes = 0;
}

void spares_borrow(struct spares *spares, struct buffer *buf)
{
    CHECK(buf->bytes == NULL);
    if (spares->n == 0) return;
    *buf = spares->kept[--spares->n];
    spares->n_bytes -= buf->cap;
}

void spares_return(struct spares *spares, struct buffer *buf)
{
    CHECK(buffer_len(buf) == 0);
    if (buf->bytes == NULL) return;
    if (spares->n == SPARES_MAX || buf->cap > SPARE_CAP_MAX || spares->n_bytes + buf->cap > SPARES_BYTES_MAX) {
        buffer_fini(buf);
        return;
    }
    spares->n_bytes += buf->cap;
    spares->kept[spares->n++] = *buf;
    buffer_init(buf, 0);
}

void spares_take_back(struct spares *spares, struct buffer *buf)
{
    buffer_consume(buf, buffer_len(buf));
    spares_return(spares, buf);
}
