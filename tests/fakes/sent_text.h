/* sent_text.h: what a client has sent, as text: in the notation of JSON with single quotes. */
#ifndef RL_FAKES_SENT_TEXT_H
#define RL_FAKES_SENT_TEXT_H

#include "fakes/scripted_daemon.h"

enum { SENT_TEXT_SIZE = 1024 };

/* The next packed value, to the end of `out`. */
void sent_text_show(struct pull *pull, char *out);

/* "method param, param": the next request or notification, which must be there. Valid until the next call. */
const char *sent_text(struct scripted_daemon *daemon);

#endif
