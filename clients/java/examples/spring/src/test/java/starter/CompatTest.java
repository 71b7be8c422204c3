package starter;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.ratelimitd.CallOptions;
import io.ratelimitd.RateLimitClient;
import io.ratelimitd.RateLimitException;
import io.ratelimitd.spring.RateLimit;
import java.io.IOException;
import java.net.UnixDomainSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.SocketChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletionException;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;
import org.springframework.context.ConfigurableApplicationContext;
import org.springframework.context.annotation.Configuration;
import org.springframework.web.bind.annotation.GetMapping;
import org.springframework.web.bind.annotation.RestController;

/** A policy that shares the keys of a limiter that counts by address, class and method in Redis. */
class CompatTest {
    @TempDir
    static Path folder;
    private static Process redis;
    private static Process daemon;

    @BeforeAll
    static void start() throws Exception {
        boolean hasRedis = hasProgram("redis-server");
        if (System.getenv("CI") != null) assertTrue(hasRedis, "redis-server is not in the PATH");
        assumeTrue(hasRedis, "redis-server is not in the PATH");

        Path store = folder.resolve("redis");
        redis = new ProcessBuilder("redis-server", "--port", "0", "--unixsocket", store.toString(), "--save", "", "--dir",
                folder.toString()).redirectErrorStream(true).redirectOutput(folder.resolve("redis.log").toFile()).start();
        Path file = Files.writeString(folder.resolve("ratelimitd.yaml"), """
                store: {type: redis, redis: {addresses: ["unix:%s"]}}
                policies:
                  export: {compat: endpoint-window, limit: 2, window: 60s, deadline: 10s, on_failure: error}
                  site: {algorithm: fixed_window, limit: 100, window: 1m}
                """.formatted(store));
        String program = System.getenv("RATELIMITD_BUILD") == null ? "ratelimitd"
                : Path.of(System.getenv("RATELIMITD_BUILD"), "bin", "ratelimitd").toString();
        daemon = new ProcessBuilder(program, "-c", file.toString(), "-s", socket()).redirectErrorStream(true)
                .redirectOutput(folder.resolve("ratelimitd.log").toFile()).start();
        waitUntilTheyAnswer();
    }

    private static boolean hasProgram(String name) {
        return List.of(System.getenv("PATH").split(":")).stream().anyMatch(one -> Files.isExecutable(Path.of(one, name)));
    }

    private static String socket() {
        return folder.resolve("socket").toString();
    }

    private static void waitUntilTheyAnswer() throws InterruptedException {
        long until = System.nanoTime() + TimeUnit.SECONDS.toNanos(20);
        try (RateLimitClient client = RateLimitClient.builder().socket(Path.of(socket())).build()) {
            while (true) {
                try {
                    client.callAsync("peek", List.of("site", "k"), CallOptions.DEFAULTS.timeout(Duration.ofSeconds(5))).join();
                    return;
                } catch (CompletionException e) {
                    if (System.nanoTime() > until || !(e.getCause() instanceof RateLimitException)) throw e;
                    Thread.sleep(20);
                }
            }
        }
    }

    @AfterAll
    static void stop() throws InterruptedException {
        for (Process process : new Process[] {daemon, redis})
            if (process != null) {
                process.destroy();
                process.waitFor();
            }
    }

    @Configuration
    @EnableAutoConfiguration
    static class Base {
    }

    @RestController
    static class Reports {
        @RateLimit(policy = "export")
        @GetMapping("/export")
        String export() {
            return "export";
        }
    }

    @RestController
    static class Together {
        @RateLimit(policy = "export")
        @RateLimit(policy = "site")
        @GetMapping("/export")
        String export() {
            return "export";
        }
    }

    private static ConfigurableApplicationContext run(Class<?> controller) {
        SpringApplication app = new SpringApplication(Base.class, controller);
        app.setDefaultProperties(Map.of("PORT", 0, "spring.main.banner-mode", "off", "ratelimitd.timeout", "10s",
                "ratelimitd.socket", socket()));
        return app.run();
    }

    @Test
    void itCountsOnTheKeysOfTheOtherLimiter() throws IOException {
        try (ConfigurableApplicationContext app = run(Reports.class)) {
            Http http = new Http(app);
            for (int status : new int[] {200, 200, 429}) assertEquals(status, http.get("/export").statusCode());
        }
        try (SocketChannel store = SocketChannel.open(UnixDomainSocketAddress.of(folder.resolve("redis")))) {
            store.write(ByteBuffer.wrap("KEYS *Reports*\r\n".getBytes()));
            ByteBuffer answer = ByteBuffer.allocate(4096);
            store.read(answer);
            String key = "rate_limit:127.0.0.1-starter.CompatTest$Reports-export";
            assertEquals("*1\r\n$" + key.length() + "\r\n" + key + "\r\n", new String(answer.array(), 0, answer.position()));
        }
    }

    @Test
    void nextToAnotherLimitItStopsTheStart() {
        Throwable error = assertThrows(RuntimeException.class, () -> run(Together.class).close());
        while (error.getCause() != null) error = error.getCause();
        assertTrue(error.getMessage().contains("cannot stand next to another limit"), error.getMessage());
    }
}
