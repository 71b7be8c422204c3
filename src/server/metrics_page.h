/*
 * metrics_page.h: the method `metrics`: the page of metrics, part by part, for ratelimitctl.
 *
 * A page may be longer than an answer. `next` of an answer says where the part after it begins, and in which
 * configuration: the same place would be in the middle of another one's page. So nothing is kept between two calls, and
 * after a reload the page begins anew.
 */
#ifndef RL_SERVER_METRICS_PAGE_H
#define RL_SERVER_METRICS_PAGE_H

struct params;

/* Answers metrics [next]. 0, or -1 with the fault filled. */
int metrics_page_run(struct params *params);

#endif
