package io.ratelimitd.spring;

import io.ratelimitd.CallOptions;
import io.ratelimitd.Check;
import io.ratelimitd.Decision;
import io.ratelimitd.RateLimitClient;
import io.ratelimitd.Reservation;
import io.ratelimitd.Slot;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;

/** How the guard asks: in the thread of the call, or without waiting anywhere. */
interface Asking {
    CompletableFuture<Decision> check(Check check);

    CompletableFuture<Decision> checkAll(List<Check> checks);

    CompletableFuture<Slot> acquire(Check check);

    CompletableFuture<Reservation> reserve(Check check);

    CompletableFuture<Decision> refund(Check check);

    CompletableFuture<Decision> cancel(Reservation reservation);

    CompletableFuture<Void> read(Policies policies);

    CompletableFuture<Void> pause(long ms);

    /** Every future is completed when it is returned. A leaky bucket denies in place of a delay; check_all cannot. */
    record Blocking(RateLimitClient client) implements Asking {
        private static final CallOptions NO_DELAY = CallOptions.DEFAULTS.maxWait(Duration.ZERO);

        private static <T> CompletableFuture<T> done(Supplier<T> call) {
            try {
                return CompletableFuture.completedFuture(call.get());
            } catch (RuntimeException e) {
                return CompletableFuture.failedFuture(e);
            }
        }

        @Override
        public CompletableFuture<Decision> check(Check check) {
            return done(() -> client.check(check, NO_DELAY));
        }

        @Override
        public CompletableFuture<Decision> checkAll(List<Check> checks) {
            return done(() -> client.checkAll(checks, CallOptions.DEFAULTS));
        }

        @Override
        public CompletableFuture<Slot> acquire(Check check) {
            return done(() -> client.tryAcquire(check, CallOptions.DEFAULTS));
        }

        @Override
        public CompletableFuture<Reservation> reserve(Check check) {
            return done(() -> client.tryReserve(check, CallOptions.DEFAULTS));
        }

        @Override
        public CompletableFuture<Decision> refund(Check check) {
            return done(() -> client.refund(check, CallOptions.DEFAULTS));
        }

        @Override
        public CompletableFuture<Decision> cancel(Reservation reservation) {
            return done(reservation::cancel);
        }

        @Override
        public CompletableFuture<Void> read(Policies policies) {
            return done(() -> {
                policies.learn(client.policies());
                return null;
            });
        }

        @Override
        public CompletableFuture<Void> pause(long ms) {
            return done(() -> {
                try {
                    Thread.sleep(ms);
                    return null;
                } catch (InterruptedException e) {
                    Thread.currentThread().interrupt();
                    throw new CancellationException("interrupted during the delay of a limit");
                }
            });
        }
    }

    /** For event loops. */
    record Asynchronous(RateLimitClient client) implements Asking {
        @Override
        public CompletableFuture<Decision> check(Check check) {
            return client.checkAsync(check, CallOptions.DEFAULTS);
        }

        @Override
        public CompletableFuture<Decision> checkAll(List<Check> checks) {
            return client.checkAllAsync(checks, CallOptions.DEFAULTS);
        }

        @Override
        public CompletableFuture<Slot> acquire(Check check) {
            return client.acquireAsync(check, CallOptions.DEFAULTS);
        }

        @Override
        public CompletableFuture<Reservation> reserve(Check check) {
            return client.reserveAsync(check, CallOptions.DEFAULTS);
        }

        @Override
        public CompletableFuture<Decision> refund(Check check) {
            return client.refundAsync(check, CallOptions.DEFAULTS);
        }

        @Override
        public CompletableFuture<Decision> cancel(Reservation reservation) {
            return reservation.cancelAsync();
        }

        @Override
        public CompletableFuture<Void> read(Policies policies) {
            return client.policiesAsync(CallOptions.DEFAULTS).thenAccept(policies::learn);
        }

        @Override
        public CompletableFuture<Void> pause(long ms) {
            return CompletableFuture.runAsync(() -> { }, 
                    CompletableFuture.delayedExecutor(ms, TimeUnit.MILLISECONDS, client.executor()));
        }
    }
}
