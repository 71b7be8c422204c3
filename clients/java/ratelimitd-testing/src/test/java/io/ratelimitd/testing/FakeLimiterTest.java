package io.ratelimitd.testing;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.ratelimitd.Check;
import io.ratelimitd.DeniedException;
import io.ratelimitd.RateLimitClient;
import io.ratelimitd.RefusedException;
import io.ratelimitd.UnavailableException;
import io.ratelimitd.UnavailableException.Kind;
import io.ratelimitd.testing.FakeLimiter.Asked;
import java.time.Duration;
import java.util.List;
import org.junit.jupiter.api.Test;

class FakeLimiterTest {
    private final FakeLimiter fake = new FakeLimiter();
    private final RateLimitClient client = fake.client();

    @Test
    void itAllowsAndRecords() {
        assertTrue(client.check("web", "alice").allowed());
        assertTrue(client.checkAll(Check.of("a", "k"), Check.of("b", "k", 2)).allowed());

        assertEquals(List.of(new Asked("check", "web", "alice", 1), new Asked("check_all", "a", "k", 1),
                new Asked("check_all", "b", "k", 2)), fake.calls());
        client.verify(List.of("anything"), true);
    }

    @Test
    void itDeniesFailsAndRefusesWhenTold() {
        fake.deny("login", Duration.ofSeconds(3));
        assertEquals(3000, client.check("login", "k").retryAfterMs());
        assertEquals("login", client.checkAll(Check.of("web", "k"), Check.of("login", "k")).boundBy());
        assertThrows(DeniedException.class, () -> client.acquire("login", "k"));
        fake.deny("login", null);
        assertTrue(client.check("login", "k").retryAfter().isEmpty());
        assertTrue(client.check("web", "k").allowed());

        fake.unavailable(Kind.TIMEOUT);
        assertTrue(assertThrows(UnavailableException.class, () -> client.check("web", "k")).maybeCharged());
        fake.allowAll().refuse("BAD_KEY");
        assertEquals("BAD_KEY", assertThrows(RefusedException.class, () -> client.check("web", "k")).code());
        fake.allowAll();
        assertFalse(client.acquire("one", "k").isLost());
    }
}
