package io.ratelimitd;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;

class ValuesTest {
    @Test
    void aLongKeyKeepsItsBeginningAndAHashOfTheWhole() {
        String key = "k".repeat(513);
        byte[] sent = (byte[]) Key.bounded(key);

        assertEquals(64 + 1 + 64, sent.length);
        assertEquals("k".repeat(64) + "#" + Key.hashed(key), new String(sent));
        assertEquals("k".repeat(512), new String(((String) Key.bounded("k".repeat(512))).getBytes()));
        assertArrayEquals(new byte[] {0, (byte) 0xff}, (byte[]) Key.bounded(new byte[] {0, (byte) 0xff}));
    }

    @Test
    void joinedPartsCannotPretendToBeOthers() {
        assertEquals("a%7Cb|c%25", Key.join("a|b", "c%"));
        assertThrows(IllegalArgumentException.class, () -> Key.join("a", ""));
    }

    @Test
    void aShorthandIsAFixedWindowFromTheFirstHit() {
        assertEquals(Map.of("algorithm", "fixed_window", "limit", 10L, "window", "5s", "start", "first_hit"),
                Policy.parse("10/5s").settings());
        assertEquals("1d", Policy.parse("5000/day").settings().get("window"));
        assertEquals(Policy.parse("10/5s"), Policy.of(10, "5s"));
        for (String wrong : List.of("", "10", "10/", "10/5", "-1/s", "10/0s", "1.5/s", "10/5 fortnights"))
            assertThrows(IllegalArgumentException.class, () -> Policy.parse(wrong), wrong);
    }

    @Test
    void equalMembersAreRecognised() {
        assertTrue(Check.of("a", "k").sameCounter(Check.of("a", "k", 5)));
        assertFalse(Check.of("a", "k").sameCounter(Check.of("b", "k")));
        assertTrue(Check.of("a", "k".repeat(600)).sameCounter(Check.of("a", "k".repeat(600))));
    }

    @Test
    void theBreakerOpensAfterThreeTimeoutsAndLetsOneProbeThrough() {
        Breaker breaker = new Breaker();
        long second = TimeUnit.SECONDS.toNanos(1);
        for (int i = 0; i < 2; i++) breaker.timedOut(0);
        assertFalse(breaker.isOpen());
        breaker.timedOut(0);

        assertTrue(breaker.isOpen());
        assertFalse(breaker.admits(second - 1));
        assertTrue(breaker.admits(second));
        assertFalse(breaker.admits(second));
        breaker.unknown();
        assertTrue(breaker.admits(second));
        breaker.timedOut(second);
        assertFalse(breaker.admits(2 * second - 1));
        assertTrue(breaker.admits(2 * second));
        breaker.answered();
        assertFalse(breaker.isOpen());
    }

    @Test
    void pausesBetweenConnectionAttemptsGrowUpToAQuarterOfASecond() {
        Backoff backoff = new Backoff();
        long ms = TimeUnit.MILLISECONDS.toNanos(1);
        backoff.failed(0);
        assertTrue(backoff.isWaiting(4 * ms));
        assertFalse(backoff.isWaiting(11 * ms));
        for (int i = 0; i < 20; i++) backoff.failed(0);
        assertTrue(backoff.isWaiting(124 * ms));
        assertFalse(backoff.isWaiting(251 * ms));
        backoff.connected();
        assertFalse(backoff.isWaiting(0));
    }

    @Test
    void timeoutsAndPathsAreChecked() {
        assertThrows(IllegalArgumentException.class, () -> RateLimitClient.builder().timeout(Duration.ZERO));
        assertThrows(IllegalArgumentException.class, () -> CallOptions.DEFAULTS.timeout(Duration.ofMillis(-1)));
        assertThrows(IllegalArgumentException.class,
                () -> RateLimitClient.builder().socket(java.nio.file.Path.of("/x".repeat(60))));
        RateLimitClient.builder().timeout(Duration.ofSeconds(Long.MAX_VALUE)).build().close();
    }
}
