package starter;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import ch.qos.logback.classic.Logger;
import ch.qos.logback.classic.spi.ILoggingEvent;
import ch.qos.logback.core.read.ListAppender;
import io.micrometer.core.instrument.binder.MeterBinder;
import io.micrometer.core.instrument.simple.SimpleMeterRegistry;
import io.ratelimitd.DeniedException;
import io.ratelimitd.RateLimitClient;
import io.ratelimitd.UnavailableException;
import io.ratelimitd.UnavailableException.Kind;
import io.ratelimitd.spring.Headers;
import io.ratelimitd.spring.IgnoreRateLimit;
import io.ratelimitd.spring.OnError;
import io.ratelimitd.spring.RateLimit;
import io.ratelimitd.spring.RateLimitErrorHandler;
import io.ratelimitd.spring.WebContext;
import io.ratelimitd.testing.FakeLimiter;
import io.ratelimitd.testing.TestDaemon;
import jakarta.servlet.DispatcherType;
import jakarta.servlet.FilterChain;
import jakarta.servlet.ServletException;
import jakarta.servlet.http.HttpServlet;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletRequestWrapper;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;
import java.io.InputStream;
import java.lang.reflect.Method;
import java.net.Socket;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.security.Principal;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.RegisterExtension;
import org.slf4j.LoggerFactory;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;
import org.springframework.boot.web.servlet.ServletRegistrationBean;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.http.ResponseEntity;
import org.springframework.stereotype.Controller;
import org.springframework.web.bind.annotation.GetMapping;
import org.springframework.web.bind.annotation.RequestMapping;
import org.springframework.web.bind.annotation.RequestMethod;
import org.springframework.web.bind.annotation.RestController;
import org.springframework.web.filter.OncePerRequestFilter;
import org.springframework.web.servlet.mvc.method.annotation.StreamingResponseBody;

/** What the starter does with declarations of every kind, and what it refuses at the start. */
class StarterTest {
    @RegisterExtension
    static final TestDaemon daemon = new TestDaemon("""
            policies:
              two: {algorithm: fixed_window, limit: 2, window: 1m}
              one: {algorithm: concurrency, limit: 1}
              wide: {algorithm: fixed_window, limit: 100, window: 1h}
              shaped: {algorithm: leaky_bucket, limit: 5, window: 1s, burst: 1, max_wait: 10s}
            """);
    @RegisterExtension
    static final TestDaemon inline = new TestDaemon("inline: {allow: true}\npolicies: {}\n");
    private static final FakeLimiter FAKE = new FakeLimiter();
    private final List<Http> apps = new ArrayList<>();

    /** Starts an application of these classes; it ends with the test. */
    private Http start(Class<?>[] classes, String... settings) {
        SpringApplication app = new SpringApplication(classes);
        app.setDefaultProperties(Map.of("PORT", 0, "spring.main.banner-mode", "off",
                "ratelimitd.timeout", "10s", "ratelimitd.socket", daemon.socket().toString()));
        Http http = new Http(app.run(settings));
        apps.add(http);
        return http;
    }

    private static Class<?>[] with(Class<?>... classes) {
        List<Class<?>> all = new ArrayList<>(List.of(classes));
        all.add(Base.class);
        return all.toArray(Class<?>[]::new);
    }

    @AfterEach
    void stop() {
        apps.forEach(http -> http.app().close());
        FAKE.allowAll();
    }

    /** The message with which the application does not start. */
    private String refused(Class<?>[] classes, String... settings) {
        Throwable error = assertThrows(RuntimeException.class, () -> start(classes, settings));
        StringBuilder messages = new StringBuilder();
        for (Throwable cause = error; cause != null; cause = cause.getCause()) messages.append(cause.getMessage());
        return messages.toString();
    }

    @Configuration
    @EnableAutoConfiguration
    static class Base {
    }

    @Configuration
    static class Faked {
        @Bean
        RateLimitClient client() {
            return FAKE.client();
        }
    }

    @RestController
    @RateLimit(policy = "two")
    static class OfClass {
        @GetMapping("/a")
        String a() {
            return "a";
        }

        @IgnoreRateLimit
        @GetMapping("/free")
        String free() {
            return "free";
        }

        @RateLimit(policy = "two", key = "'own'")
        @GetMapping("/own")
        String own() {
            return "own";
        }
    }

    @Test
    void annotationsOfTheClassCountUnlessTheMethodHasItsOwnOrIgnoresThem() {
        Http http = start(with(OfClass.class));

        for (int status : new int[] {200, 200, 429}) assertEquals(status, http.get("/a").statusCode());
        for (int i = 0; i < 4; i++) assertEquals(200, http.get("/free").statusCode());
        for (int status : new int[] {200, 200, 429}) assertEquals(status, http.get("/own").statusCode());
    }

    @RestController
    static class Options {
        @RateLimit(policy = "two")
        @RequestMapping(path = "/options", method = {RequestMethod.OPTIONS, RequestMethod.POST})
        String options() {
            return "options";
        }

        @RateLimit(policy = "two", key = "'skips'", skip = "#preflight")
        @RequestMapping(path = "/skips", method = {RequestMethod.OPTIONS, RequestMethod.POST})
        String skips() {
            return "skips";
        }
    }

    @Test
    void aForgedPreflightIsCounted() {
        Http http = start(with(Options.class));
        for (String path : List.of("/options", "/skips")) {
            HttpRequest forged = HttpRequest.newBuilder(http.uri(path)).method("OPTIONS", HttpRequest.BodyPublishers.noBody())
                    .header("Access-Control-Request-Method", "x").build();
            for (int status : new int[] {200, 200, 429}) assertEquals(status, http.send(forged).statusCode(), path);
        }
    }

    /** A servlet next to Spring MVC, as the Servlet API has it. */
    @Configuration
    static class PlainServlet {
        @Bean
        ServletRegistrationBean<HttpServlet> plain() {
            return new ServletRegistrationBean<>(new HttpServlet() {
                private static final long serialVersionUID = 1L;

                @Override
                protected void doGet(HttpServletRequest request, HttpServletResponse response) throws IOException, ServletException {
                    boolean isIncluded = request.getDispatcherType() == DispatcherType.INCLUDE;
                    String path = isIncluded ? "/x" : request.getPathInfo(); /* that of the one that includes */
                    if ("/forward".equals(path)) request.getRequestDispatcher("/raw/x").forward(request, response);
                    else if ("/include".equals(path)) request.getRequestDispatcher("/raw/x").include(request, response);
                    else if ("/async".equals(path)) request.startAsync().dispatch("/raw/x");
                    else response.getWriter().write("raw");
                }
            }, "/raw/*", "/free/*") {
                {
                    setAsyncSupported(true);
                }
            };
        }
    }

    @Test
    void noSpellingOfAPathPassesAFilter() throws IOException {
        Http http = start(with(PlainServlet.class), "--ratelimitd.filters[0].pattern=/raw/**", "--ratelimitd.filters[0].limit=0",
                "--ratelimitd.filters[0].window=1m", "--ratelimitd.filters[0].exclude=/raw/free/**", "--ratelimitd.verify=false");
        assertEquals("raw", http.get("/free/x").body());
        for (String path : List.of("/raw/x", "//raw/x", "/raw//x", "/free/../raw/x", "/raw/free/../x", "/./raw/x", "/%72aw/x",
                "/raw;a=1/x", "/raw/x;a=1", "/raw/x/", "/raw/free/..;a=1/x", "/raw/free/%2e%2e/x", "/raw/%66ree/../x"))
            assertFalse(raw(http, path).contains("raw\r\n0") || raw(http, path).endsWith("raw"), path);
    }

    /** No client library changes the path. */
    private static String raw(Http http, String path) throws IOException {
        try (Socket socket = new Socket("127.0.0.1", http.uri("/").getPort())) {
            socket.getOutputStream().write(("GET " + path + " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").getBytes());
            return new String(socket.getInputStream().readAllBytes());
        }
    }

    @Test
    void aFilterSeesForwardsIncludesAndDispatches() {
        for (String way : List.of("forward", "include", "async")) {
            Http http = start(with(PlainServlet.class), "--ratelimitd.filters[0].pattern=/raw/x", "--ratelimitd.filters[0].policy=two",
                    "--ratelimitd.filters[0].key='" + way + "'");
            for (int status : new int[] {200, 200}) assertEquals(status, http.get("/free/" + way).statusCode(), way);
            assertTrue(http.get("/free/" + way).statusCode() >= 429, way);
        }
    }

    @Controller
    static class Forwarding {
        @GetMapping("/forward")
        String forward() {
            return "forward:/target";
        }

        @GetMapping("/include")
        void include(HttpServletRequest request, HttpServletResponse response) throws Exception {
            request.getRequestDispatcher("/target").include(request, response);
        }

        @RateLimit(policy = "wide", key = "'outer'")
        @GetMapping("/outer")
        String outer() {
            return "forward:/target";
        }

        @RateLimit(policy = "one", slot = true, key = "'held'")
        @GetMapping("/held")
        String held() {
            return "forward:/target";
        }

        @RateLimit(policy = "two", key = "'target'")
        @GetMapping("/target")
        ResponseEntity<String> target() {
            return ResponseEntity.ok("target");
        }
    }

    @Test
    void aForwardIsLimitedAtItsTargetAndWhatWasTakenBeforeGoesBack() {
        for (String path : List.of("/forward", "/include", "/outer", "/held")) {
            Http http = start(with(Forwarding.class));
            for (int status : new int[] {200, 200, 429}) assertEquals(status, http.get(path).statusCode(), path);
            assertEquals(429, http.get("/target").statusCode(), path);
            waitForNoSlot();
            stop();
            daemon.advance(Duration.ofMinutes(1));
        }
        /* two of three requests to /outer */
        assertEquals(98, daemon.client().peek("wide", "outer").remaining());
    }

    @RestController
    static class Principals {
        @RateLimit(policy = "two", key = "user")
        @GetMapping("/who")
        String who() {
            return "who";
        }
    }

    @Configuration
    static class FindsUsers {
        @Bean
        OncePerRequestFilter users() {
            return new OncePerRequestFilter() {
                @Override
                protected void doFilterInternal(HttpServletRequest request, HttpServletResponse response, FilterChain chain)
                        throws ServletException, IOException {
                    String user = request.getHeader("X-User");
                    chain.doFilter(user == null ? request : new HttpServletRequestWrapper(request) {
                        @Override
                        public Principal getUserPrincipal() {
                            return () -> user;
                        }
                    }, response);
                }
            };
        }
    }

    @Test
    void aUserThatNothingLooksForIsAnError() {
        assertEquals(500, start(with(Principals.class)).get("/who").statusCode());

        Http http = start(with(Principals.class, FindsUsers.class));
        for (int status : new int[] {200, 200, 429}) assertEquals(status, http.get("/who").statusCode());
        for (int status : new int[] {200, 200, 429}) assertEquals(status, http.get("/who", "X-User", "eve").statusCode());
    }

    @Test
    void filtersLimitUrlsBeforeTheyAreHandled() {
        Http http = start(with(OfClass.class), "--ratelimitd.filters[0].pattern=/api/**",
                "--ratelimitd.filters[0].policy=two", "--ratelimitd.filters[0].exclude=/api/health");

        for (int status : new int[] {404, 404, 429}) assertEquals(status, http.get("/api/nothing").statusCode());
        assertEquals(404, http.get("/api/health").statusCode());
        assertEquals(200, http.get("/free").statusCode());
    }

    @Test
    void aSecondLimiterAddsToTheFields() {
        Http http = start(with(OfClass.class), "--ratelimitd.filters[0].pattern=/**", "--ratelimitd.filters[0].policy=two",
                "--ratelimitd.filters[0].key='all'");

        HttpResponse<String> response = http.get("/a");
        assertEquals(List.of("\"two\";q=2;w=60, \"two\";q=2;w=60"), response.headers().allValues("RateLimit-Policy"));
    }

    @Test
    void forwardedAddressesCountOnlyFromTrustedProxies() {
        Http direct = start(with(OfClass.class));
        Http behind = start(with(OfClass.class), "--ratelimitd.trusted-proxies=127.0.0.0/8");

        for (int i = 0; i < 2; i++) assertEquals(200, direct.get("/a", "X-Forwarded-For", "192.0.2." + i).statusCode());
        assertEquals(429, direct.get("/a", "X-Forwarded-For", "192.0.2.9").statusCode());
        assertEquals(200, behind.get("/a", "X-Forwarded-For", "192.0.2.9").statusCode());
    }

    @RestController
    static class Down {
        @RateLimit(policy = "two", onError = OnError.DENY)
        @GetMapping("/deny")
        String deny() {
            return "deny";
        }

        @RateLimit(policy = "two")
        @GetMapping("/allow")
        String allow() {
            return "allow";
        }
    }

    @Test
    void withoutADaemonItStartsAndEachLimitDoesAsItSays() {
        Http http = start(with(Down.class), "--ratelimitd.socket=/nonexistent/socket");

        HttpResponse<String> allowed = http.get("/allow");
        assertEquals(200, allowed.statusCode());
        assertTrue(allowed.headers().firstValue("RateLimit").isEmpty());
        HttpResponse<String> denied = http.get("/deny");
        assertEquals(503, denied.statusCode());
        assertEquals("1", denied.headers().firstValue("Retry-After").orElse(null));
    }

    @Configuration
    static class ErrorFunction {
        @Bean
        RateLimitErrorHandler errors() {
            return (error, policy, call) -> {
                assertEquals("two", policy.name());
                String rule = ((WebContext) call).header("X-Rule");
                return rule == null ? OnError.DEFAULT : OnError.valueOf(rule + (error.kind() == Kind.TIMEOUT ? "" : "?"));
            };
        }
    }

    @Test
    void aFunctionDecidesForLimitsWithoutARuleOfTheirOwn() {
        Http http = start(with(Down.class, Faked.class, ErrorFunction.class), "--ratelimitd.on-error=deny");
        FAKE.unavailable(Kind.TIMEOUT);

        assertEquals(200, http.get("/allow", "X-Rule", "ALLOW").statusCode());
        assertEquals(503, http.get("/allow", "X-Rule", "DENY").statusCode());
        assertEquals(503, http.get("/allow").statusCode());
        assertEquals(503, http.get("/deny", "X-Rule", "ALLOW").statusCode());
    }

    @RestController
    static class Fields {
        @RateLimit(policy = "two", headers = Headers.LEGACY)
        @GetMapping("/legacy")
        String legacy() {
            return "legacy";
        }

        @RateLimit(policy = "wide", headers = Headers.BOTH)
        @RateLimit(policy = "two", headers = Headers.NONE)
        @GetMapping("/mixed")
        String mixed() {
            return "mixed";
        }

        @RateLimit(policy = "two")
        @RateLimit(policy = "wide", headers = Headers.NONE)
        @GetMapping("/default")
        String byDefault() {
            return "default";
        }
    }

    @Test
    void eachLimitChoosesItsHeaderFields() {
        Http http = start(with(Fields.class), "--ratelimitd.headers=none",
                "--ratelimitd.filters[0].pattern=/filtered", "--ratelimitd.filters[0].policy=two",
                "--ratelimitd.filters[0].headers=ietf");

        HttpResponse<String> legacy = http.get("/legacy");
        assertEquals("2", legacy.headers().firstValue("X-RateLimit-Limit").orElse(null));
        assertTrue(legacy.headers().firstValue("RateLimit").isEmpty());
        HttpResponse<String> mixed = http.get("/mixed");
        assertEquals("\"wide\";q=100;w=3600", mixed.headers().firstValue("RateLimit-Policy").orElse(null));
        assertEquals("2", mixed.headers().firstValue("X-RateLimit-Limit").orElse(null));
        HttpResponse<String> denied = http.get("/default");
        assertEquals(429, denied.statusCode());
        assertTrue(denied.headers().firstValue("RateLimit").isEmpty());
        assertTrue(denied.headers().firstValue("Retry-After").isPresent());
        assertTrue(http.get("/filtered").headers().firstValue("RateLimit").isPresent());
    }

    @RestController
    static class Shaped {
        @RateLimit(policy = "shaped")
        @GetMapping("/alone")
        String alone() {
            return "alone";
        }

        @RateLimit(policy = "shaped", key = "'together'")
        @RateLimit(policy = "wide")
        @GetMapping("/together")
        String together() {
            return "together";
        }
    }

    @Test
    void aDelayIsADenialUnlessSeveralLimitsAreDecidedTogether() {
        Http http = start(with(Shaped.class));

        assertEquals(200, http.get("/alone").statusCode());
        assertEquals(429, http.get("/alone").statusCode());
        assertEquals(200, http.get("/together").statusCode());
        long started = System.nanoTime();
        assertEquals(200, http.get("/together").statusCode());
        assertTrue(System.nanoTime() - started >= 200_000_000);
    }

    @Test
    void aFilterCanBeSwitchedOff() {
        Http http = start(with(), "--ratelimitd.filters[0].pattern=/**", "--ratelimitd.filters[0].policy=misspelt",
                "--ratelimitd.filters[0].enabled=false");

        assertTrue(http.get("/nothing").headers().firstValue("RateLimit").isEmpty());
    }

    @Test
    void aRefusalIsAnErrorEvenWhereTheDaemonMayBeAway() {
        Http http = start(with(Down.class, Faked.class));
        FAKE.refuse("BAD_KEY");

        assertEquals(500, http.get("/allow").statusCode());
    }

    @Test
    void disabledItAsksNoDaemon() {
        Http http = start(with(Down.class, Faked.class), "--ratelimitd.enabled=false");
        FAKE.deny("two", Duration.ofSeconds(3));

        assertEquals(200, http.get("/allow").statusCode());
        assertTrue(http.get("/allow").headers().firstValue("RateLimit").isEmpty());
    }

    @RestController
    static class Async {
        static volatile CompletableFuture<String> result;

        @RateLimit(policy = "one", slot = true)
        @GetMapping("/later")
        CompletableFuture<String> later() {
            return result;
        }

        @RateLimit(policy = "one", slot = true)
        @RateLimit(policy = "one", slot = true)
        @GetMapping("/twice")
        String twice() {
            return "twice";
        }

        @RateLimit(policy = "one", slot = true)
        @GetMapping("/callable")
        Callable<String> callable() {
            return () -> "called";
        }

        @RateLimit(policy = "one", slot = true)
        @GetMapping("/broken")
        String broken(HttpServletRequest request) {
            throw new IllegalStateException("the handler fails");
        }
    }

    @Test
    void twoSlotsOfOnePolicyAndKeyAreTakenOnce() {
        Http http = start(with(Async.class));
        for (int i = 0; i < 2; i++) {
            HttpResponse<String> answer = http.get("/twice");
            assertEquals(200, answer.statusCode(), answer.body());
        }
    }

    @Test
    void asynchronousHandlersHoldTheirSlotUntilTheyHaveAnswered() throws Exception {
        Http http = start(with(Async.class));
        Async.result = new CompletableFuture<>();
        CompletableFuture<HttpResponse<String>> first = CompletableFuture.supplyAsync(() -> http.get("/later"));
        while (daemon.client().stats().get("slots") == 0) Thread.onSpinWait();

        assertEquals(429, http.get("/later").statusCode());
        Async.result.complete("done");
        assertEquals("done", first.get().body());
        waitForNoSlot();
        assertEquals("called", http.get("/callable").body());
        waitForNoSlot();
        assertEquals(500, http.get("/broken").statusCode());
        waitForNoSlot();
    }

    @RestController
    static class Streaming {
        static final CountDownLatch seen = new CountDownLatch(1);

        @RateLimit(policy = "one", slot = true)
        @GetMapping("/stream")
        StreamingResponseBody stream() {
            return out -> {
                out.write('1');
                out.flush();
                try {
                    seen.await();
                } catch (InterruptedException e) {
                    Thread.currentThread().interrupt();
                }
                out.write('2');
            };
        }
    }

    @Test
    void aSlotIsHeldUntilAStreamHasEnded() throws Exception {
        Http http = start(with(Streaming.class));

        try (InputStream body = http.open("/stream")) {
            assertEquals('1', body.read());
            assertEquals(1, daemon.client().stats().get("slots"));
            assertEquals(429, http.get("/stream").statusCode());
            Streaming.seen.countDown();
            assertEquals("2", new String(body.readAllBytes()));
        }
        waitForNoSlot();
    }

    private static void waitForNoSlot() {
        while (daemon.client().stats().get("slots") > 0) Thread.onSpinWait();
    }

    @RestController
    static class Written {
        static final CountDownLatch seen = new CountDownLatch(1);

        @RateLimit(policy = "two", key = "'w'", chargeWhen = "#status == 401")
        @GetMapping("/written")
        void written(HttpServletResponse response) throws IOException, InterruptedException {
            response.setContentLength(1);
            response.getOutputStream().write('x');
            response.flushBuffer();
            seen.await();
        }
    }

    @Test
    void whatDependsOnTheStatusIsSettledBeforeTheClientHasItsAnswer() {
        Http http = start(with(Written.class));
        assertEquals("x", http.get("/written").body());

        assertEquals(2, http.app().getBean(RateLimitClient.class).peek("two", "w").remaining());
        Written.seen.countDown();
    }

    static class Mailer {
        @RateLimit(policy = "two", key = "#to")
        public String send(String to) {
            return "sent to " + to;
        }

        @RateLimit(policy = "two", key = "'hidden'")
        String hidden() { /* as visible as the bean needs it */
            return "hidden";
        }

        @RateLimit(policy = "one", key = "'all'", slot = true)
        public CompletableFuture<String> slowly(CompletableFuture<String> result) {
            return result;
        }
    }

    @Configuration
    static class MailerConfiguration {
        @Bean
        Mailer mailer() {
            return new Mailer();
        }
    }

    @Test
    void beansWithoutARequestAreLimitedByTheirArguments() {
        Mailer mailer = start(with(MailerConfiguration.class)).app().getBean(Mailer.class);

        mailer.send("eve");
        mailer.send("eve");
        assertEquals("sent to bob", mailer.send("bob"));
        DeniedException denied = assertThrows(DeniedException.class, () -> mailer.send("eve"));
        mailer.hidden();
        mailer.hidden();
        assertThrows(DeniedException.class, mailer::hidden);
        assertTrue(denied.decision().retryAfterMs() > 0);
    }

    @Test
    void aFutureHoldsTheSlotOfABeanUntilItIsCompleted() {
        Mailer mailer = start(with(MailerConfiguration.class)).app().getBean(Mailer.class);
        CompletableFuture<String> running = new CompletableFuture<>();

        mailer.slowly(running);
        assertThrows(DeniedException.class, () -> mailer.slowly(running));
        running.complete("done");
        mailer.slowly(running);
    }

    static class Holding {
        @RateLimit(policy = "one", key = "'all'", slot = true)
        @RateLimit(policy = "two", key = "'all'")
        public void run() {
        }
    }

    @Configuration
    static class HoldingConfiguration {
        @Bean
        Holding both() {
            return new Holding();
        }
    }

    @Test
    void aDenialNamesThePolicyThatDenied() {
        Holding bean = start(with(HoldingConfiguration.class)).app().getBean(Holding.class);
        bean.run();
        bean.run();

        assertContains("denied by two", assertThrows(DeniedException.class, bean::run).getMessage());
    }

    static class Strict {
        @RateLimit(policy = "two", key = "'all'", onError = OnError.DENY)
        public void run() {
        }
    }

    @Configuration
    static class StrictConfiguration {
        @Bean
        Strict strict() {
            return new Strict();
        }
    }

    @Test
    void aBeanThatDeniesWithoutTheDaemonThrowsWhy() {
        Strict strict = start(with(StrictConfiguration.class, Faked.class)).app().getBean(Strict.class);
        FAKE.unavailable(Kind.TIMEOUT);

        assertEquals(Kind.TIMEOUT, assertThrows(UnavailableException.class, strict::run).kind());
    }

    @Test
    void countersAreMetrics() {
        Http http = start(with(OfClass.class, Fields.class));
        SimpleMeterRegistry registry = new SimpleMeterRegistry();
        http.app().getBeansOfType(MeterBinder.class).get("rateLimitMetrics").bindTo(registry);
        http.get("/mixed"); /* of two policies */
        for (int i = 0; i < 2; i++) http.get("/a");

        assertEquals(1, registry.get("ratelimitd.checks").tags("policy", "wide", "result", "allowed").counter().count());
        assertEquals(2, registry.get("ratelimitd.checks").tags("policy", "two", "result", "allowed").counter().count());
        assertEquals(1, registry.get("ratelimitd.checks").tags("policy", "two", "result", "denied").counter().count());
        assertEquals(0, registry.get("ratelimitd.unavailable").tag("kind", "timeout").functionCounter().count());
    }

    @Test
    void theHealthIndicatorAsksTheDaemon() throws ReflectiveOperationException {
        Http http = start(with(Faked.class));

        assertEquals("UP", health(http));
        FAKE.unavailable(Kind.TIMEOUT);
        assertEquals("DOWN", health(http));
        Http without = start(with(Faked.class), "--management.health.ratelimitd.enabled=false");
        assertFalse(without.app().containsBean("ratelimitdHealthIndicator"));
    }

    /** Its type is in another package in each version of Spring Boot. */
    private static String health(Http http) throws ReflectiveOperationException {
        Object indicator = http.app().getBean("ratelimitdHealthIndicator");
        Method health = indicator.getClass().getMethod("health");
        health.setAccessible(true);
        Object result = health.invoke(indicator);
        return result.getClass().getMethod("getStatus").invoke(result).toString();
    }

    @RestController
    static class Sending {
        private final Mailer mailer;

        Sending(Mailer mailer) {
            this.mailer = mailer;
        }

        @GetMapping("/send")
        String send() {
            return mailer.send("eve");
        }
    }

    @Test
    void aDenialOfABeanIs429InARequestAndNoAnswer503() {
        Http http = start(with(MailerConfiguration.class, Sending.class));
        for (int status : new int[] {200, 200, 429}) assertEquals(status, http.get("/send").statusCode());
        assertTrue(http.get("/send").headers().firstValue("Retry-After").isPresent());

        Http down = start(with(MailerConfiguration.class, Sending.class, Faked.class), "--ratelimitd.on-error=deny");
        FAKE.unavailable(Kind.TIMEOUT);
        assertEquals(503, down.get("/send").statusCode());
    }

    @RestController
    static class Keys {
        @RateLimit(policy = "two", key = "{'a|b', param('user') ?: '-'}")
        @GetMapping("/list")
        String list() {
            return "list";
        }

        @RateLimit(policy = "two", key = "param('user').getBytes()")
        @GetMapping("/bytes")
        String bytes() {
            return "bytes";
        }
    }

    @Test
    void aKeyOfPartsIsJoinedAndBytesAreTheseBytes() {
        Http http = start(with(Keys.class, Faked.class));
        http.get("/list?user=");
        http.get("/bytes?user=eve");

        List<String> keys = FAKE.calls().stream().map(FakeLimiter.Asked::key).toList();
        assertEquals(List.of("a%7Cb|-", "eve"), keys.subList(keys.size() - 2, keys.size()));
    }

    @RestController
    static class Failing {
        @RateLimit(policy = "one", slot = true, key = "'failing'")
        @RateLimit(policy = "two", key = "'failing'", cost = "param('cost')")
        @GetMapping("/failing")
        String failing() {
            return "failing";
        }
    }

    @Test
    void anExpressionThatFailsGivesBackWhatEarlierLimitsHold() {
        Http http = start(with(Failing.class));

        for (int i = 0; i < 3; i++) assertEquals(500, http.get("/failing?cost=many").statusCode());
        waitForNoSlot();
        assertEquals(200, http.get("/failing?cost=1").statusCode());
    }

    @Test
    void theLogSaysWhatFollowsIfTheDaemonIsAway() {
        Logger logger = (Logger) LoggerFactory.getLogger("io.ratelimitd.spring.FailureLog");
        ListAppender<ILoggingEvent> lines = new ListAppender<>();
        lines.start();
        Http http = start(with(Down.class, Faked.class));
        logger.addAppender(lines);
        FAKE.unavailable(Kind.UNREACHABLE);
        for (int i = 0; i < 3; i++) http.get("/allow");
        logger.detachAppender(lines);

        assertEquals(1, lines.list.size());
        assertContains("(unreachable), so requests pass: ", lines.list.get(0).getFormattedMessage());
    }

    @Test
    void withoutAnotherNameTheServiceIsTheApplications() {
        int before = FAKE.calls().size();
        start(with(Inline.class, Faked.class), "--spring.application.name=shop").get("/");

        assertEquals(List.of("shop|GET /|127.0.0.1"),
                FAKE.calls().stream().skip(before).map(FakeLimiter.Asked::key).toList());
    }

    @RestController
    static class Paused {
        @RateLimit(limit = 1, window = "1s", settings = {"penalty.time=1h", "penalty.factor=2", "penalty.max=1d"})
        @GetMapping("/paused")
        String get() {
            return "";
        }
    }

    @Test
    void aLimitInTheProgramMayHaveAPenalty() {
        Http http = start(with(Paused.class), "--ratelimitd.socket=" + inline.socket(), "--ratelimitd.filters[0].pattern=/also",
                "--ratelimitd.filters[0].limit=1", "--ratelimitd.filters[0].window=1s",
                "--ratelimitd.filters[0].settings.penalty.time=1h");
        for (String path : List.of("/paused", "/also")) {
            http.get(path);
            var denied = http.get(path);
            assertEquals(429, denied.statusCode(), path);
            assertTrue(Long.parseLong(denied.headers().firstValue("Retry-After").orElseThrow()) > 3000, path);
        }
    }

    /* ---- what stops the start ---- */

    @RestController
    static class Misspelt {
        @RateLimit(policy = "tow")
        @GetMapping("/")
        String get() {
            return "";
        }
    }

    @RestController
    static class Inline {
        @RateLimit(limit = 10, window = "5s")
        @GetMapping("/")
        String get() {
            return "";
        }
    }

    @RestController
    static class BadSyntax {
        @RateLimit(policy = "two", key = "#request.getParameter('user'")
        @GetMapping("/")
        String get() {
            return "";
        }
    }

    @RestController
    static class BadVariable {
        @RateLimit(policy = "two", key = "#reqest.getParameter('user')")
        @GetMapping("/")
        String get() {
            return "";
        }
    }

    @RestController
    static class BadProperty {
        @RateLimit(policy = "two", key = "join(ip, uesr)")
        @GetMapping("/")
        String get() {
            return "";
        }
    }

    @RestController
    static class BadWindow {
        @RateLimit(limit = 1, window = "5 fortnights")
        @GetMapping("/")
        String get() {
            return "";
        }
    }

    @RestController
    static class NoHandler {
        @GetMapping("/")
        String get() {
            return made();
        }

        @RateLimit(policy = "two")
        String made() {
            return "";
        }
    }

    @Controller
    @RateLimit(policy = "two")
    static class NoHandlers {
        public void onMessage() {
        }
    }

    static class Unseen {
        @RateLimit(policy = "two", key = "'all'")
        private void run() {
        }

        public void start() {
            run();
        }
    }

    @Configuration
    static class UnseenConfiguration {
        @Bean
        Unseen unseen() {
            return new Unseen();
        }
    }

    @RestController
    static class BadSetting {
        @RateLimit(limit = 1, window = "5s", settings = {"algorithm=token_bucket", "bust=20"})
        @GetMapping("/")
        String get() {
            return "";
        }
    }

    @RestController
    static class BadCost {
        @RateLimit(policy = "two", cost = "-1")
        @GetMapping("/")
        String get() {
            return "";
        }
    }

    @RestController
    static class Both {
        @RateLimit(policy = "two", limit = 1, window = "5s")
        @GetMapping("/")
        String get() {
            return "";
        }
    }

    static class FieldsOfABean {
        @RateLimit(policy = "two", key = "'all'", headers = Headers.IETF)
        public void run() {
        }
    }

    @Configuration
    static class FieldsConfiguration {
        @Bean
        FieldsOfABean fields() {
            return new FieldsOfABean();
        }
    }

    static class NoKey {
        @RateLimit(policy = "two")
        public void run() {
        }
    }

    @Configuration
    static class NoKeyConfiguration {
        @Bean
        NoKey noKey() {
            return new NoKey();
        }
    }

    @RestController
    static class BadPath {
        @RateLimit(policy = "two", key = "path('misspelt')")
        @GetMapping("/q/{id}")
        String get() {
            return "";
        }
    }

    @RestController
    static class EqualNames {
        @RateLimit(limit = 1, window = "5s", endpoint = "GET /second")
        @GetMapping("/first")
        String first() {
            return "";
        }

        @RateLimit(limit = 1, window = "5s")
        @GetMapping("/second")
        String second() {
            return "";
        }
    }

    static class Counted {
        @RateLimit(limit = 1, window = "5s", key = "'all'")
        public void run() {
        }
    }

    @Configuration
    static class TwoOfOneClass {
        @Bean
        Counted one() {
            return new Counted();
        }

        @Bean
        Counted other() {
            return new Counted();
        }
    }

    @Test
    void mistakesStopTheStartAndAreNamed() {
        assertContains("has no variable `misspelt`; it has id", refused(with(BadPath.class)));
        assertContains("`GET /second`", refused(with(EqualNames.class)));
        assertContains("the beans one and other", refused(with(TwoOfOneClass.class)));
        assertContains("no variable `id` there", refused(with(), "--ratelimitd.filters[0].pattern=/q/{id}",
                "--ratelimitd.filters[0].policy=two", "--ratelimitd.filters[0].key=path('id')"));
        assertContains("has no policy tow", refused(with(Misspelt.class)));
        assertContains("inline: {allow: true}", refused(with(Inline.class)));
        assertContains("@RateLimit at starter.StarterTest$BadSyntax.get", refused(with(BadSyntax.class)));
        assertContains("there is no variable #reqest", refused(with(BadVariable.class)));
        assertContains("there is no property uesr", refused(with(BadProperty.class)));
        assertContains("such as 5s", refused(with(BadWindow.class)));
        assertContains("no request is mapped to this method", refused(with(NoHandler.class)));
        assertContains("no request is mapped to this controller", refused(with(NoHandlers.class)));
        assertContains("private, static or final", refused(with(UnseenConfiguration.class)));
        assertContains("has no setting `bust`; there are algorithm, anchor, burst", refused(with(BadSetting.class)));
        assertContains("cost: the expression `-1` is not valid: it is negative", refused(with(BadCost.class)));
        assertContains("filters[0].on-eror", refused(with(), "--ratelimitd.filters[0].pattern=/**",
                "--ratelimitd.filters[0].policy=two", "--ratelimitd.filters[0].on-eror=deny"));
        assertContains("either a policy, or a limit and a window", refused(with(Both.class)));
        assertContains("give the limit a key", refused(with(NoKeyConfiguration.class)));
        assertContains("no header fields", refused(with(FieldsConfiguration.class)));
        assertContains("is not a pattern", refused(with(), "--ratelimitd.filters[0].pattern=/a/{b", "--ratelimitd.filters[0].policy=two"));
        assertContains("is not an address", refused(with(), "--ratelimitd.trusted-proxies=proxy.example"));
    }

    private static void assertContains(String part, String text) {
        assertTrue(text.contains(part), text);
    }
}
