/* engine_counters.h: what the engine counts: decisions, failure answers, reservations. */
#ifndef RL_ENGINE_ENGINE_COUNTERS_H
#define RL_ENGINE_ENGINE_COUNTERS_H

#include "base/counters.h"

#define ENGINE_COUNTERS(COUNTER, GAUGE)                                                                                \
    COUNTER(checks, "checks asked for, each member of a check_many or check_all counted")                              \
    COUNTER(allowed, "decisions that allowed")                                                                         \
    COUNTER(denied, "decisions that denied")                                                                           \
    COUNTER(shadow_denied, "decisions of shadow policies that would have denied; they count as allowed",               \
            COUNTED_BY_LABEL)                                                                                          \
    COUNTER(candidate_allowed, "checks that the candidate of their policy would have allowed")                         \
    COUNTER(candidate_denied, "checks that the candidate of their policy would have denied")                           \
    COUNTER(candidate_only_allowed, "of those it would have allowed, checks that the enforced limits denied")          \
    COUNTER(candidate_only_denied, "of those it would have denied, checks that the enforced limits allowed")           \
    COUNTER(candidate_skipped, "checks that the candidate of their policy did not decide: the store gave it no "       \
                               "answer, or space or memory was short")                                                 \
    COUNTER(decided_unlimited, "decisions answered by policy without a store: unlimited, or limit 0")                  \
    COUNTER(failure_allow, "failure answers of on_failure: allow", "failure_choices", "answer=\"allow\"")              \
    COUNTER(failure_deny, "failure answers of on_failure: deny", "failure_choices", "answer=\"deny\"")                 \
    COUNTER(failure_local, "failure answers of on_failure: local", "failure_choices", "answer=\"local\"")              \
    COUNTER(failure_error, "failure answers of on_failure: error, and store operations that could not be done",        \
            "failure_choices", "answer=\"error\"")                                                                     \
    COUNTER(failure_down, "failure answers because the store was away", "failure_answers", "reason=\"down\"")          \
    COUNTER(failure_breaker, "failure answers because the store refused or was late before, and is not asked now",     \
            "failure_answers", "reason=\"breaker\"")                                                                   \
    COUNTER(failure_deadline, "failure answers because the deadline passed", "failure_answers", "reason=\"deadline\"") \
    COUNTER(failure_overload, "failure answers because a cap towards the store was reached", "failure_answers",        \
            "reason=\"overload\"")                                                                                     \
    COUNTER(failure_store_error, "failure answers because the store answered with an error or nonsense",               \
            "failure_answers", "reason=\"store_error\"")                                                               \
    COUNTER(overloaded, "checks refused because caps.max_inflight was reached or memory was short")                    \
    COUNTER(split_checks, "check_alls whose limits lay in several hash slots of a cluster, each charged apart")        \
    COUNTER(split_refunds, "parts of these that were charged and given back, because another part was denied")         \
    COUNTER(split_refunds_lost, "parts of these that stay charged although another part was denied: the reply to the " \
                                "charge, or the give-back, was lost")                                                  \
    COUNTER(decided_by_lease, "checks decided here by leased units, without asking Redis")                             \
    COUNTER(leases_taken, "leases: units of a busy key that Redis charged ahead of the checks that use them")          \
    COUNTER(leases_units, "units in them")                                                                             \
    COUNTER(leases_returned, "leased units that were not used, and given back")                                        \
    COUNTER(leases_lost,                                                                                               \
            "leased units that were not used and stay charged: their window has ended, they have drained "             \
            "from a bucket or another daemon was charged in it since, a reload has named another Redis, or the "       \
            "give-back failed")                                                                                        \
    COUNTER(late_replies, "store replies that came after their check was answered, and were dropped")                  \
    COUNTER(reservations_made, "reservations made in the store")                                                       \
    COUNTER(reservations_settled, "reservations settled or cancelled before their end")                                \
    COUNTER(reservations_untimed, "reservations made that this daemon will not give back itself at their end")         \
    COUNTER(merged_back, "units that local answers admitted and that were charged in Redis afterwards (merge_back)")   \
    COUNTER(merge_back_dropped, "units that local answers admitted and that merge_back did not charge in Redis: "      \
                                "their window has ended, twice the limit is reached, the policy has changed, a "       \
                                "reload has named another Redis, or there was no space for them")                      \
    COUNTER(abandoned, "acquires and reserves that their connection gave up with abandon")                             \
    GAUGE(reservations, "reservations of this daemon that have not ended")                                             \
    GAUGE(live_daemons, "daemons that share Redis, as counted last for local_share: live; 0: not known")               \
    GAUGE(merge_back_waiting, "counters whose local units wait to be charged in Redis (merge_back)")                   \
    GAUGE(shadow_default, "1 while defaults.shadow is on: nothing is denied, except by policies with shadow: false")   \
    GAUGE(inflight, "checks being decided now")

COUNTERS_DECLARE(engine, ENGINE_COUNTERS);

#endif
