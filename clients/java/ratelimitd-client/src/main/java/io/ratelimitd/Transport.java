package io.ratelimitd;

import java.util.Set;
import java.util.concurrent.CompletableFuture;

/** What a client speaks through: the daemon's socket, or in tests a fake. Safe for any number of threads. */
public interface Transport extends AutoCloseable {
    /**
     * Makes a call; never blocks. The result is completed with an answer, an {@link UnavailableException} or a
     * {@link RefusedException}. To cancel it is to give up: the transport undoes what the daemon grants later.
     */
    CompletableFuture<Answer> call(Request request);

    /** What the daemon lists in its answer to hello: additions to the protocol that may be used. */
    default Set<String> features() {
        return Set.of();
    }

    /** Calls without an answer now. */
    int pending();

    @Override
    void close();

    /**
     * @param result nil, Boolean, Long, String, byte[], or a List or Map of these
     * @param link   the connection that gave it: slots belong to it
     */
    record Answer(Object result, Link link) {
    }
}
