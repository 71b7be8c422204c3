package io.ratelimitd.http;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.ratelimitd.Decision;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.greenbytes.http.sfv.Parser;
import org.junit.jupiter.api.Test;

class HttpAnswerTest {
    private static Decision decision(boolean allowed, Object... more) {
        Map<String, Object> fields = new HashMap<>(Map.of("allowed", allowed, "limit", 100L, "remaining", allowed ? 99L : 0L,
                "retry_after_ms", allowed ? 0L : 2400L, "reset_after_ms", 60000L, "source", "memory", "policy_version", 1L));
        fields.putAll(Map.of("of", "web", "quota", 100L, "window_ms", 60000L, "of_reset_ms", 59001L));
        for (int i = 0; i < more.length; i += 2) {
            if (more[i + 1] == null) fields.remove(more[i]);
            else fields.put((String) more[i], more[i + 1]);
        }
        return Decision.of(fields, 1);
    }

    private static HttpAnswer answer(Decision decision) {
        return HttpAnswer.of(decision, false, HeaderStyle.IETF, null, 0);
    }

    @Test
    void allFieldsAreStructuredFieldsWithTheSameMeaning() {
        Decision burst = decision(true, "limit", 150L, "of", "search/second");
        Map<String, String> headers = answer(decision(true).with(List.of(decision(true), burst))).headers();

        var policies = Parser.parseList(headers.get("RateLimit-Policy")).get();
        assertEquals("web", policies.get(0).get());
        assertEquals(100L, policies.get(0).getParams().get("q").get());
        assertEquals(60L, policies.get(0).getParams().get("w").get());
        assertEquals("search/second", policies.get(1).get());
        assertEquals(150L, policies.get(1).getParams().get("ratelimitd-burst").get());
        var states = Parser.parseList(headers.get("RateLimit")).get();
        assertEquals(99L, states.get(0).getParams().get("r").get());
        assertEquals(60L, states.get(0).getParams().get("t").get());
        var slot = Parser.parseList(answer(decision(true, "window_ms", 0L)).headers().get("RateLimit-Policy")).get().get(0);
        assertEquals("concurrent-requests", slot.getParams().get("qu").get());
    }

    @Test
    void nothingIsReportedWithoutACount() {
        assertTrue(answer(decision(true, "of", null)).headers().isEmpty());
        assertTrue(answer(decision(true, "shadow_denied", true)).headers().isEmpty());
        assertEquals(503, answer(decision(false, "source", "deny")).status());
    }

    @Test
    void aDenialSaysWhenToComeBackUnlessItIsNotKnown() {
        assertEquals("3", answer(decision(false)).headers().get("Retry-After"));
        assertEquals("1", answer(decision(false, "retry_after_ms", 1L)).headers().get("Retry-After"));
        assertEquals(null, answer(decision(false, "retry_after_ms", -1L)).headers().get("Retry-After"));
        assertEquals(null, HttpAnswer.of(decision(false, "of", null), true, HeaderStyle.IETF, null, 0).headers().get("Retry-After"));
    }

    @Test
    void theOlderFieldsHaveSecondsFromNowOrSince1970() {
        HeaderStyle epoch = new HeaderStyle(HeaderStyle.Fields.LEGACY, HeaderStyle.Reset.EPOCH);
        assertEquals("1060", HttpAnswer.of(decision(true), false, epoch, null, 1_000_500).headers().get("X-RateLimit-Reset"));
        HeaderStyle both = new HeaderStyle(HeaderStyle.Fields.BOTH, HeaderStyle.Reset.DELTA);
        assertEquals("60", HttpAnswer.of(decision(true), false, both, null, 0).headers().get("X-RateLimit-Reset"));
    }

    @Test
    void theKeyIsTheFirstAddressThatIsNotTrusted() {
        ClientAddress address = new ClientAddress(List.of("10.0.0.0/8", "2001:db8::/32"), 64, "X-Forwarded-For");
        assertEquals("192.0.2.7", address.key("10.0.0.1", name -> List.of("198.51.100.1, 192.0.2.7", "10.1.1.1")));
        assertEquals("10.0.0.1", address.key("10.0.0.1", name -> List.of("garbage")));
        assertEquals("203.0.113.5", address.key("203.0.113.5", name -> List.of("192.0.2.7")));
        ClientAddress two = new ClientAddress(List.of("2"), 64, "X-Forwarded-For");
        assertEquals("192.0.2.7", two.key("10.0.0.1", name -> List.of("1.1.1.1, 192.0.2.7, 10.0.0.2")));
    }

    @Test
    void addressesAreNormalised() {
        ClientAddress address = new ClientAddress(List.of(), 64, "X-Forwarded-For");
        Map.of("[2001:DB8:1:2:3::4]:443", "2001:db8:1:2::/64", "::ffff:192.0.2.7", "192.0.2.7", "::ffff:c000:207", "192.0.2.7",
                "192.0.2.7:80", "192.0.2.7", "fe80::1%eth0", "fe80::/64", "::1", "::/64").forEach((peer, key) ->
                assertEquals(key, address.key(peer, name -> List.of()), peer));
        for (String wrong : List.of("", "localhost", "1.2.3", "1.2.3.4.5", "01.2.3.4", "1::2::3", "::g", "@"))
            assertThrows(IllegalArgumentException.class, () -> address.key(wrong, name -> List.of()), wrong);
    }
}
