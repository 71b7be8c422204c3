package io.ratelimitd.testing;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.ratelimitd.CallOptions;
import io.ratelimitd.Check;
import io.ratelimitd.Decision;
import io.ratelimitd.DeniedException;
import io.ratelimitd.Policy;
import io.ratelimitd.RateLimitClient;
import io.ratelimitd.RefusedException;
import io.ratelimitd.Reservation;
import io.ratelimitd.Slot;
import io.ratelimitd.UnavailableException;
import io.ratelimitd.UnavailableException.Kind;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.RegisterExtension;

/** The client and a real daemon. */
class ClientTest {
    @RegisterExtension
    static final TestDaemon daemon = new TestDaemon("""
            policies:
              five: {algorithm: fixed_window, limit: 5, window: 10s, start: first_hit}
              tokens: {algorithm: fixed_window, limit: 1000, window: 1m}
              one: {algorithm: concurrency, limit: 1}
              many: {algorithm: fixed_window, limit: 1000000, window: 1m}
            inline: {allow: true}
            """);
    private RateLimitClient client;

    @BeforeEach
    void open() {
        client = RateLimitClient.builder().socket(daemon.socket()).timeout(Duration.ofSeconds(10)).build();
    }

    @AfterEach
    void close() {
        client.close();
    }

    @Test
    void aDenialIsAValueAndSaysWhenToComeBack() {
        for (int i = 4; i >= 0; i--) assertEquals(i, client.check("five", "eve").remaining());
        Decision denied = client.check("five", "eve");

        assertFalse(denied.allowed());
        assertEquals(Duration.ofSeconds(10), denied.retryAfter().orElseThrow());
        assertEquals("five", denied.of());
        assertEquals(10_000, denied.windowMs());
        assertEquals(6, client.counters().checks());
        assertEquals(1, client.counters().denied());
        daemon.advance(Duration.ofSeconds(10));
        assertTrue(client.check("five", "eve").allowed());
    }

    @Test
    void whatIsGivenBackRightBeforeTheClientIsClosedIsGivenBack() {
        for (int i = 0; i < 20; i++) {
            RateLimitClient other = RateLimitClient.builder().socket(daemon.socket()).timeout(Duration.ofSeconds(10)).build();
            try (other; Reservation units = other.reserve("five", "last", 5, Duration.ofMinutes(1))) {
                assertTrue(units.isOpen());
            }
            long until = System.nanoTime() + Duration.ofSeconds(10).toNanos();
            while (client.peek("five", "last").remaining() < 5) assertTrue(System.nanoTime() < until);
        }
    }

    @Test
    void unitsOfAnInlinePolicyAreGivenBackAlsoBeforeItIsKnownThatTheDaemonReservesThem() {
        Check check = Check.of(Policy.of(5, "10s").withName("guess"), "k", 3);
        for (int left = 5; left > 2; left--) { /* the first one goes out together with hello */
            try (Reservation units = client.reserve(check, CallOptions.DEFAULTS.ttl(Duration.ofMinutes(1)))) {
                assertEquals(left - 3, units.decision().remaining());
                assertEquals("guess", units.decision().of());
                units.settle(1);
                assertFalse(units.isOpen());
            }
            assertEquals(left - 1, client.peek(check.withCost(0)).remaining());
        }
    }

    @Test
    void everyMethodDoesAsItSays() {
        assertEquals(3, client.check("five", "a", 2).remaining());
        assertEquals(3, client.peek("five", "a").remaining());
        assertEquals(1, client.refund("five", "a", 1).refunded());
        assertEquals(4, client.check(Check.of("five", "a"), CallOptions.DEFAULTS.atMost(9)).granted());
        assertTrue(client.reset("five", "a"));
        assertFalse(client.reset("five", "a"));
        assertTrue(client.check(Check.of(Policy.of(1, "5s"), "a", 1)).allowed());
        assertEquals("five", client.explain(Check.of("five", "a")).get("policy"));
        assertEquals(4, client.policies().stream().filter(policy -> policy.get("inline") == null).count());
        assertTrue(client.stats().get("requests") > 0);

        Decision all = client.checkAll(Check.of("five", "b"), Check.of("tokens", "b", 1001));
        assertFalse(all.allowed());
        assertEquals("tokens", all.boundBy());
        assertEquals(2, all.members().size());
        assertEquals(5, client.peek("five", "b").remaining());
        List<Decision> each = client.checkMany(List.of(Check.of("five", "c", 5), Check.of("five", "c"), Check.of("five", "d")));
        assertEquals(List.of(true, false, true), each.stream().map(Decision::allowed).toList());
    }

    @Test
    void anEstimateThatNeverFitsIsClampedToTheCapacity() {
        CallOptions options = CallOptions.DEFAULTS.clamp();
        try (Reservation clamped = client.reserve(Check.of("tokens", "k", 5000), options)) {
            assertEquals(1000, clamped.decision().granted());
            clamped.settle(300);
        }
        assertFalse(client.tryReserve(Check.of("tokens", "k", 5000), options).isOpen());
        assertEquals(600, client.reserve(Check.of("tokens", "k", 600), options).decision().granted());
        assertEquals(1000, client.reserveAsync(Check.of("tokens", "other", 5000), options).join().decision().granted());
    }

    @Test
    void slotsAndReservationsEndWithTheirBlock() {
        try (Slot slot = client.acquire("one", "k")) {
            assertTrue(slot.isHeld());
            assertThrows(DeniedException.class, () -> client.acquire("one", "k"));
        }
        try (Reservation reservation = client.reserve("tokens", "k", 800, Duration.ofMinutes(5))) {
            assertThrows(DeniedException.class, () -> client.reserve("tokens", "k", 800, Duration.ofMinutes(5)));
            assertEquals(500, reservation.settle(300).refunded());
        }
        assertThrows(IllegalStateException.class, () -> {
            try (Reservation reservation = client.reserve("tokens", "k", 700, Duration.ofMinutes(5))) {
                assertTrue(reservation.isOpen());
                throw new IllegalStateException("the work fails");
            }
        });
        assertEquals(700, client.peek("tokens", "k").remaining());
        try (Slot again = client.acquire("one", "k")) {
            assertTrue(again.release());
            assertFalse(again.release());
        }
    }

    @Test
    void aClosedClientsSlotsAreFree() {
        Slot slot = client.acquire("one", "k");
        client.close();

        assertTrue(slot.isLost());
        assertFalse(slot.release());
        while (daemon.client().stats().get("slots") > 0) Thread.onSpinWait();
        assertEquals(Kind.LOST, assertThrows(UnavailableException.class, () -> client.check("five", "k")).kind());
    }

    @Test
    void mistakesAreRefusedAndNamed() {
        assertEquals("UNKNOWN_POLICY", assertThrows(RefusedException.class, () -> client.check("fvie", "k")).code());
        RefusedException missing = assertThrows(RefusedException.class, () -> client.verify(List.of("five", "six"), true));
        assertEquals(List.of("six"), missing.missing());
        client.verify(List.of("five"), true);
    }

    @Test
    void withoutADaemonNothingWasCharged() {
        try (RateLimitClient absent = RateLimitClient.builder().socket(Path.of("/nonexistent/socket")).build()) {
            UnavailableException error = assertThrows(UnavailableException.class, () -> absent.check("five", "k"));
            assertEquals(Kind.UNREACHABLE, error.kind());
            assertFalse(error.maybeCharged());
            assertTrue(List.of(error.getStackTrace()).stream().anyMatch(frame -> frame.getClassName().endsWith("ClientTest")));
        }
    }

    @Test
    void interruptedCallersDisturbNoOtherAndLeaveNoSlot() throws Exception {
        client.check("many", "k");
        long connections = daemon.client().stats().get("connections_accepted");
        AtomicInteger interrupted = new AtomicInteger();
        List<Thread> victims = new ArrayList<>();
        for (int i = 0; i < 4; i++) {
            Thread victim = new Thread(() -> {
                try {
                    while (true) client.tryAcquire(Check.of("one", "k"), CallOptions.DEFAULTS).close();
                } catch (CancellationException e) {
                    if (Thread.currentThread().isInterrupted()) interrupted.incrementAndGet();
                }
            });
            victim.start();
            victims.add(victim);
        }
        for (Thread victim : victims) {
            for (int i = 0; i < 200; i++) assertTrue(client.check("many", "k").allowed());
            victim.interrupt();
        }
        for (Thread victim : victims) victim.join();

        assertEquals(4, interrupted.get());
        while (daemon.client().stats().get("slots") > 0) Thread.onSpinWait();
        assertEquals(connections, daemon.client().stats().get("connections_accepted"));
        while (client.pending() > 0) Thread.onSpinWait(); /* the answer to a release may still be on its way */
    }

    @Test
    void anInterruptedThreadGivesBackAllTheSame() {
        Slot slot = client.acquire("one", "k");
        Reservation settled = client.reserve("many", "k", 50, Duration.ofMinutes(1));
        Reservation cancelled = client.reserve("many", "k", 50, Duration.ofMinutes(1));
        Thread.currentThread().interrupt();
        assertTrue(slot.release());
        assertEquals(40, settled.settle(10).refunded());
        assertEquals(50, cancelled.cancel().refunded());
        assertTrue(Thread.interrupted());
    }

    @Test
    void cancelledFuturesLeaveNoSlot() {
        for (int i = 0; i < 200; i++) {
            CompletableFuture<Slot> future = client.acquireAsync(Check.of("one", "k"), CallOptions.DEFAULTS);
            if (i % 2 == 0) Thread.yield();
            if (!future.cancel(true)) future.join().close();
        }
        while (daemon.client().stats().get("slots") > 0) Thread.onSpinWait();
        client.acquire("one", "k").close();
    }

    @Test
    void aFailingHookChangesNoDecision() {
        try (RateLimitClient hooked = RateLimitClient.builder().socket(daemon.socket()).timeout(Duration.ofSeconds(10))
                .onDecision((checks, decision) -> {
                    throw new IllegalStateException("the hook fails");
                }).build()) {
            assertTrue(hooked.check("five", "k").allowed());
        }
    }

    @Test
    void asynchronousCallsRunInAHandfulOfThreads() {
        Set<String> threads = ConcurrentHashMap.newKeySet();
        List<CompletableFuture<Void>> calls = new ArrayList<>();
        for (int i = 0; i < 2000; i++)
            calls.add(client.checkAsync("many", "threads" + i).thenAccept(decision -> threads.add(Thread.currentThread().getName())));
        CompletableFuture.allOf(calls.toArray(CompletableFuture[]::new)).join();

        threads.remove(Thread.currentThread().getName()); /* of what was answered at once */
        assertTrue(threads.size() <= Math.max(2, Runtime.getRuntime().availableProcessors()) + 1, threads.toString());
        assertTrue(threads.stream().allMatch(name -> name.startsWith("ratelimitd-")), threads.toString());
    }

    @Test
    void anIdIsSentToDaemonsThatTakeIt() {
        Policy moving = Policy.of(5, "1m").withId("GET /x");

        assertTrue(client.check(Check.of(moving, "k", 1)).allowed()); /* one that does not take it gets none */
        assertEquals("GET /x", moving.settings().get("id"));
        assertEquals(moving, moving.withId("another"));
        assertEquals(Policy.inline(Map.of("algorithm", "token_bucket", "limit", 1, "window", "1m", "burst", 2)),
                Policy.inline(Map.of("algorithm", "token_bucket", "limit", 1, "window", "1m", "burst", 2)).withId("GET /x"));
        assertTrue(((String) Policy.of(5, "1m").withId("x".repeat(300)).settings().get("id")).length() <= 256);
    }
}
