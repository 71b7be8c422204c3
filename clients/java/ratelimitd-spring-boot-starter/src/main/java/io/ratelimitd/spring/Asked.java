package io.ratelimitd.spring;

import io.ratelimitd.Check;
import io.ratelimitd.Decision;
import io.ratelimitd.Reservation;
import io.ratelimitd.Slot;
import java.util.ArrayList;
import java.util.List;

/** A limit that a call is asked for, and what it has taken. Its passage guards it. */
final class Asked {
    final Limit limit;
    final List<Limit> also = new ArrayList<>();      /* conditional ones of the same policy and key */
    final List<Asked> replaces = new ArrayList<>();  /* conditional ones of an earlier place: this one is charged in any case */
    Check check;
    long free;          /* units that an unconditional limit of the same policy and key has charged already */
    boolean isTaken;    /* it was granted, and not given back */
    Decision decision;  /* null: none */
    Slot slot;
    Reservation reservation;

    Asked(Limit limit, Check check) {
        this.limit = limit;
        this.check = check;
    }

    boolean isConditional() {
        return limit.chargeWhen() != null;
    }

    /** Two of these are charged once. */
    boolean equalTo(Asked other) {
        return limit.slot() == other.limit.slot() && check.sameCounter(other.check);
    }

    void granted(Decision answer) {
        decision = answer;
        isTaken = answer.allowed();
    }
}
