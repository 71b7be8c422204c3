/*
 * policy_list.h: the answer to `policies`, written in pieces.
 *
 *   policy_list_begin ─▶ BEGINNING  until no request of the connection is under way, because nothing else may come into
 *                                   the output between two pieces, and no other list gathers
 *                        GATHERING  the inline policies become bytes: how many there are must be known before the first
 *                                   piece, and any of them may be given up meanwhile. Not for a page without them
 *                        WRITING    the policies of the set, then those bytes, as the peer reads them; with the last
 *                                   piece the list is gone
 *
 * Each piece is work of its session's turn (sessions.h), so that neither many policies nor many lists delay another
 * session. The list holds its set: a reload changes nothing of an answer that has begun. As long as its list is under
 * way a session takes no further message.
 */
#ifndef RL_SERVER_POLICY_LIST_H
#define RL_SERVER_POLICY_LIST_H

struct params;
struct policies_page;

/* Answers policies [page], at once if it can. 0, or -1 with the fault filled. */
int policy_list_begin(struct params *params, const struct policies_page *page);

#endif
