package reactive;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.ratelimitd.DeniedException;
import io.ratelimitd.RateLimitClient;
import io.ratelimitd.UnavailableException.Kind;
import io.ratelimitd.spring.OnError;
import io.ratelimitd.spring.RateLimit;
import io.ratelimitd.testing.FakeLimiter;
import io.ratelimitd.testing.TestDaemon;
import java.io.IOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.RegisterExtension;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;
import org.springframework.context.ConfigurableApplicationContext;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.web.bind.annotation.GetMapping;
import org.springframework.web.bind.annotation.RestController;
import org.springframework.web.reactive.function.server.RouterFunction;
import org.springframework.web.reactive.function.server.RouterFunctions;
import org.springframework.web.reactive.function.server.ServerResponse;
import reactor.core.publisher.Mono;
import reactor.core.publisher.Sinks;

/** What WebFlux has besides the routes of the example service. */
class ReactiveTest {
    @RegisterExtension
    static final TestDaemon daemon = new TestDaemon("""
            policies:
              two: {algorithm: fixed_window, limit: 2, window: 1m}
              one: {algorithm: concurrency, limit: 1}
              shaped: {algorithm: leaky_bucket, limit: 5, window: 1s, burst: 1, max_wait: 10s}
            """);
    private static final HttpClient CLIENT = HttpClient.newHttpClient();
    private static final FakeLimiter FAKE = new FakeLimiter();
    private final List<ConfigurableApplicationContext> apps = new ArrayList<>();

    @Configuration
    @EnableAutoConfiguration
    static class Base {
    }

    private ConfigurableApplicationContext start(List<Class<?>> classes, String... settings) {
        List<Class<?>> all = new ArrayList<>(classes);
        all.add(Base.class);
        SpringApplication app = new SpringApplication(all.toArray(Class<?>[]::new));
        app.setDefaultProperties(Map.of("PORT", 0, "spring.main.banner-mode", "off", "ratelimitd.timeout", "10s",
                "ratelimitd.socket", daemon.socket().toString(), "spring.reactor.netty.shutdown-quiet-period", "0s"));
        ConfigurableApplicationContext running = app.run(settings);
        apps.add(running);
        return running;
    }

    @AfterEach
    void stop() {
        apps.forEach(ConfigurableApplicationContext::close);
        FAKE.allowAll();
    }

    private static HttpResponse<String> send(ConfigurableApplicationContext app, HttpRequest.Builder request, String path) {
        String port = app.getEnvironment().getProperty("local.server.port");
        try {
            return CLIENT.send(request.uri(URI.create("http://127.0.0.1:" + port + path)).build(),
                    HttpResponse.BodyHandlers.ofString());
        } catch (IOException | InterruptedException e) {
            throw new IllegalStateException(e);
        }
    }

    private static int get(ConfigurableApplicationContext app, String path) {
        return send(app, HttpRequest.newBuilder(), path).statusCode();
    }

    @RestController
    static class Handlers {
        @RateLimit(policy = "two")
        @GetMapping("/two")
        Mono<String> two() {
            return Mono.just("two");
        }

        @RateLimit(policy = "two", key = "'down'", onError = OnError.DENY)
        @GetMapping("/down")
        Mono<String> down() {
            return Mono.just("down");
        }

        @RateLimit(policy = "one", slot = true)
        @GetMapping("/broken")
        Mono<String> broken() {
            return Mono.error(new IllegalStateException("the handler fails"));
        }

        @RateLimit(policy = "two", key = "'paid'", chargeWhen = "#status == 500")
        @GetMapping("/paid")
        Mono<String> paid() {
            return Mono.error(new IllegalStateException("the handler fails"));
        }

        @RateLimit(policy = "shaped", key = "'s'")
        @GetMapping("/shaped")
        Mono<String> shaped() {
            return Mono.just("shaped");
        }
    }

    @Test
    void filtersLimitUrlsBeforeTheyAreHandled() {
        ConfigurableApplicationContext app = start(List.of(), "--ratelimitd.filters[0].pattern=/api/**",
                "--ratelimitd.filters[0].policy=two", "--ratelimitd.filters[0].exclude=/api/health");

        for (int status : new int[] {404, 404, 429}) assertEquals(status, get(app, "/api/nothing"));
        assertEquals(404, get(app, "/api/health"));
    }

    @Configuration
    static class Routes {
        @Bean
        RouterFunction<ServerResponse> routes() {
            return RouterFunctions.route().GET("/routed", request -> ServerResponse.ok().bodyValue("routed")).build();
        }
    }

    @Test
    void filtersLimitRoutesThatHaveNoController() {
        ConfigurableApplicationContext app = start(List.of(Routes.class), "--ratelimitd.filters[0].pattern=/**",
                "--ratelimitd.filters[0].policy=two");

        for (int status : new int[] {200, 200, 429}) assertEquals(status, get(app, "/routed"));
    }

    @Test
    void aForgedPreflightIsCounted() {
        ConfigurableApplicationContext app = start(List.of(Handlers.class), "--ratelimitd.filters[0].pattern=/**",
                "--ratelimitd.filters[0].policy=two");
        for (int i = 0; i < 3; i++)
            send(app, HttpRequest.newBuilder().method("OPTIONS", HttpRequest.BodyPublishers.noBody())
                    .header("Access-Control-Request-Method", "GET"), "/two");

        assertEquals(429, get(app, "/two"));
    }

    @Test
    void aHandlerThatFailsGivesItsSlotBackAndIsChargedByItsStatus() {
        ConfigurableApplicationContext app = start(List.of(Handlers.class));

        for (int i = 0; i < 3; i++) {
            assertEquals(500, get(app, "/broken"));
            while (daemon.client().stats().get("slots") > 0) Thread.onSpinWait();
        }
        for (int status : new int[] {500, 500, 429}) assertEquals(status, get(app, "/paid"));
    }

    @Test
    void aDelayIsWaitedForWithoutAThread() {
        ConfigurableApplicationContext app = start(List.of(Handlers.class));

        assertEquals(200, get(app, "/shaped"));
        long started = System.nanoTime();
        assertEquals(200, get(app, "/shaped"));
        assertTrue(System.nanoTime() - started >= 200_000_000);
    }

    @Configuration
    static class Faked {
        @Bean
        RateLimitClient client() {
            return FAKE.client();
        }
    }

    @Test
    void withoutAnAnswerEachLimitDoesAsItSaysAndARefusalIsAnError() {
        ConfigurableApplicationContext app = start(List.of(Handlers.class, Faked.class));
        FAKE.unavailable(Kind.TIMEOUT);
        assertEquals(200, get(app, "/two"));
        assertEquals(503, get(app, "/down"));

        FAKE.allowAll().refuse("BAD_KEY");
        assertEquals(500, get(app, "/two"));
    }

    static class Mailer {
        @RateLimit(policy = "two", key = "#to")
        public Mono<String> send(String to) {
            return Mono.just("sent to " + to);
        }

        @RateLimit(policy = "one", key = "'all'", slot = true)
        public Mono<String> slowly(Mono<String> result) {
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

    @RestController
    static class Sending {
        private final Mailer mailer;

        Sending(Mailer mailer) {
            this.mailer = mailer;
        }

        @GetMapping("/send")
        Mono<String> send() {
            return mailer.send("eve");
        }
    }

    @Test
    void aDenialOfABeanIs429InARequest() {
        ConfigurableApplicationContext app = start(List.of(MailerConfiguration.class, Sending.class));

        for (int status : new int[] {200, 200, 429}) assertEquals(status, get(app, "/send"));
    }

    @Test
    void aMonoIsLimitedWhenItIsSubscribedAndHoldsItsSlotUntilItsEnd() {
        Mailer mailer = start(List.of(MailerConfiguration.class)).getBean(Mailer.class);
        Sinks.One<String> result = Sinks.one();
        Mono<String> first = mailer.slowly(result.asMono());
        assertEquals(0, daemon.client().stats().get("slots"));

        var running = first.toFuture();
        while (daemon.client().stats().get("slots") == 0) Thread.onSpinWait();
        assertThrows(DeniedException.class, () -> mailer.slowly(Mono.just("second")).block());
        result.tryEmitValue("done");
        assertEquals("done", running.join());
        while (daemon.client().stats().get("slots") > 0) Thread.onSpinWait();
        assertEquals("third", mailer.slowly(Mono.just("third")).block());
    }

    @RestController
    static class Misspelt {
        @RateLimit(policy = "tow")
        @GetMapping("/")
        Mono<String> get() {
            return Mono.just("");
        }
    }

    @RestController
    static class OfTheOtherWorld {
        @RateLimit(policy = "two", key = "#request.getParameter('user'")
        @GetMapping("/")
        Mono<String> get() {
            return Mono.just("");
        }
    }

    @Test
    void mistakesStopTheStart() {
        for (Class<?> mistake : List.of(Misspelt.class, OfTheOtherWorld.class))
            assertThrows(RuntimeException.class, () -> start(List.of(mistake)));
    }
}
