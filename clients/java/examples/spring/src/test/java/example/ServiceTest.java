package example;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.ratelimitd.Slot;
import io.ratelimitd.testing.TestDaemon;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.time.Duration;
import org.greenbytes.http.sfv.Item;
import org.greenbytes.http.sfv.Parser;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.RegisterExtension;
import org.springframework.boot.SpringApplication;
import starter.Http;

/** The example service, in a real server, with a real daemon. */
class ServiceTest {
    @RegisterExtension
    static final TestDaemon daemon = new TestDaemon("""
            policies:
              web: {algorithm: fixed_window, limit: 3, window: 1m, start: first_hit}
              login: {algorithm: fixed_window, limit: 3, window: 1m, start: first_hit}
              tenant: {algorithm: fixed_window, limit: 2, window: 1m, start: first_hit}
              slow: {algorithm: concurrency, limit: 1}
              stream: {algorithm: concurrency, limit: 1}
              budget: {algorithm: token_bucket, limit: 10, window: 1m}
            inline: {allow: true}
            """);
    private static Http http;

    @BeforeAll
    static void start() {
        http = new Http(SpringApplication.run(Service.class, "--server.port=0",
                "--ratelimitd.socket=" + daemon.socket(), "--ratelimitd.timeout=10s"));
    }

    @AfterAll
    static void stop() {
        http.app().close();
    }

    private static String field(HttpResponse<String> response, String name) {
        assertTrue(response.headers().allValues(name).size() <= 1, name);
        return response.headers().firstValue(name).orElse(null);
    }

    @Test
    void aHandlerIsLimitedAndSaysSo() {
        HttpResponse<String> first = http.get("/ok");

        assertEquals(200, first.statusCode());
        assertEquals("ok\n", first.body());
        assertEquals("\"web\";q=3;w=60", field(first, "RateLimit-Policy"));
        assertEquals("\"web\";r=2;t=60", field(first, "RateLimit"));
        http.get("/ok");
        http.get("/ok");
        HttpResponse<String> denied = http.get("/ok");
        assertEquals(429, denied.statusCode());
        assertEquals("60", field(denied, "Retry-After"));
        assertEquals("application/problem+json", field(denied, "Content-Type"));
        assertEquals("{\"type\":\"https://iana.org/assignments/http-problem-types#quota-exceeded\",\"title\":\"Quota"
                + " exceeded\",\"status\":429,\"violated-policies\":[\"web\"]}", denied.body());
        daemon.advance(Duration.ofMinutes(1));
        assertEquals(200, http.get("/ok").statusCode());
    }

    @Test
    void theFieldsAreStructuredFields() {
        HttpResponse<String> response = http.get("/two", "X-Tenant", "acme");

        for (String name : new String[] {"RateLimit", "RateLimit-Policy"}) {
            var items = Parser.parseList(field(response, name)).get();
            assertEquals(2, items.size());
            assertEquals("web", items.get(0).get());
            assertEquals("tenant", ((Item<?>) items.get(1)).get());
        }
        assertEquals(2L, Parser.parseList(field(response, "RateLimit")).get().get(0).getParams().get("r").get());
    }

    @Test
    void twoLimitsChargeBothOrNone() {
        for (int i = 0; i < 2; i++) assertEquals(200, http.get("/two", "X-Tenant", "acme").statusCode());

        assertEquals(429, http.get("/two", "X-Tenant", "acme").statusCode());
        assertEquals(200, http.get("/ok").statusCode()); /* the third of `web`: the denial has charged none */
        assertEquals(429, http.get("/ok").statusCode());
    }

    @Test
    void aLimitWhoseKeyIsNullDoesNotCount() {
        for (int i = 0; i < 3; i++) assertEquals(200, http.get("/two").statusCode());

        assertEquals(429, http.get("/two").statusCode()); /* by `web` alone */
    }

    @Test
    void onlyFailedLoginsAreCharged() {
        for (int i = 0; i < 5; i++) assertEquals(200, http.post("/login", "user=eve&password=right").statusCode());
        for (int i = 0; i < 3; i++) assertEquals(401, http.post("/login", "user=eve&password=wrong").statusCode());

        assertEquals(429, http.post("/login", "user=eve&password=right").statusCode());
        assertEquals(200, http.post("/login", "user=bob&password=right").statusCode());
    }

    @Test
    void aLoginWithoutAUserIsCountedAndNeverAnErrorOfTheService() {
        for (String form : new String[] {"password=bad", "user=&password=bad", ""})
            assertEquals(401, http.post("/login", form).statusCode());
        assertEquals(429, http.post("/login", "password=right").statusCode());
        assertEquals(401, http.post("/login", "user=a|b%25&password=bad").statusCode());

        int notUtf8 = http.post("/login", "user=k%FF%00&password=bad").statusCode();
        assertTrue(notUtf8 == 401 || notUtf8 == 400, "Tomcat 11 refuses it by itself: " + notUtf8);
    }

    @Test
    void anInlineLimitCountsForItsHandler() {
        assertEquals(200, http.get("/inline").statusCode());
        assertEquals(200, http.get("/inline").statusCode());
        assertEquals(429, http.get("/inline").statusCode());
        daemon.advance(Duration.ofSeconds(5));
        assertEquals(200, http.get("/inline").statusCode());
    }

    @Test
    void aSlotIsHeldUntilTheHandlerEnds() {
        assertEquals(200, http.get("/slow?ms=0").statusCode());
        assertEquals(200, http.get("/slow?ms=0").statusCode());
        waitForNoSlot(); /* the answer may come before the release */
        try (Slot held = daemon.client().acquire("slow", "127.0.0.1")) {
            HttpResponse<String> denied = http.get("/slow?ms=0", "Accept", "text/html");
            assertTrue(held.isHeld());
            assertEquals(429, denied.statusCode());
            assertEquals("Too many requests.\n", denied.body());
            assertEquals(null, field(denied, "Retry-After"));
        }
        waitForNoSlot();
        assertEquals(200, http.get("/slow?ms=0").statusCode());
    }

    private static void waitForNoSlot() {
        while (daemon.client().stats().get("slots") > 0) Thread.onSpinWait();
    }

    @Test
    void theCostIsAnExpression() {
        assertEquals("\"budget\";r=7;t=18", field(http.get("/cost?n=3"), "RateLimit"));
        HttpResponse<String> never = http.get("/cost?n=11");
        assertEquals(429, never.statusCode());
        assertEquals("\"budget\";r=7", field(never, "RateLimit"));
        assertEquals(null, field(never, "Retry-After"));
    }

    @Test
    void whatIsSkippedIsNotCounted() {
        for (int i = 0; i < 4; i++) assertEquals(200, http.get("/skip", "X-Probe", "yes").statusCode());

        assertFalse(http.get("/skip", "X-Probe", "yes").headers().firstValue("RateLimit").isPresent());
        assertEquals("\"login\";r=2;t=60", field(http.get("/skip"), "RateLimit"));
    }
}
