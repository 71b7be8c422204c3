package io.ratelimitd.testing;

import io.ratelimitd.CallOptions;
import io.ratelimitd.RateLimitClient;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletionException;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.extension.AfterAllCallback;
import org.junit.jupiter.api.extension.BeforeAllCallback;
import org.junit.jupiter.api.extension.BeforeEachCallback;
import org.junit.jupiter.api.extension.ExtensionContext;

/**
 * A real daemon on its memory store, with a clock that only the test moves. As a JUnit extension it runs while the tests
 * of the class do, and every test begins with unused limits:
 *
 * <pre>
 * &#64;RegisterExtension
 * static final TestDaemon daemon = new TestDaemon("policies: {login: {algorithm: fixed_window, limit: 5, window: 10s}}");
 * </pre>
 *
 * The program is $RATELIMITD, else bin/ratelimitd in $RATELIMITD_BUILD, else ratelimitd in the PATH.
 */
public final class TestDaemon implements BeforeAllCallback, BeforeEachCallback, AfterAllCallback, AutoCloseable {
    private static final Duration LONGER_THAN_ANY_LIMIT = Duration.ofDays(800);
    private static final long START_S = 10;

    private final String configuration;
    private Path folder;
    private Process process;
    private RateLimitClient client;
    private long nowMicros;

    /** @param configuration as in ratelimitd.yaml */
    public TestDaemon(String configuration) {
        this.configuration = configuration;
    }

    /** Starts it, unless it runs; returns when it answers. */
    public TestDaemon start() {
        if (process != null) return this;
        try {
            folder = Files.createTempDirectory("ratelimitd-");
            Path file = Files.writeString(folder.resolve("ratelimitd.yaml"), configuration);
            process = new ProcessBuilder(program(), "-c", file.toString(), "-s", socket().toString(), "--test-clock")
                    .redirectErrorStream(true).redirectOutput(folder.resolve("log").toFile()).start();
            waitUntilItListens();
        } catch (IOException e) {
            close();
            throw new UncheckedIOException("cannot start ratelimitd", e);
        }
        client = RateLimitClient.builder().socket(socket()).timeout(Duration.ofSeconds(10)).enabled(true).build();
        nowMicros = TimeUnit.DAYS.toMicros(20_000);
        advance(Duration.ZERO);
        return this;
    }

    private static String program() {
        if (System.getenv("RATELIMITD") != null) return System.getenv("RATELIMITD");
        String build = System.getenv("RATELIMITD_BUILD");
        return build == null ? "ratelimitd" : Path.of(build, "bin", "ratelimitd").toString();
    }

    private void waitUntilItListens() throws IOException {
        long until = System.nanoTime() + TimeUnit.SECONDS.toNanos(START_S);
        while (!Files.exists(socket())) {
            if (!process.isAlive() || System.nanoTime() - until > 0)
                throw new IOException("ratelimitd does not listen: " + Files.readString(folder.resolve("log")));
            Thread.onSpinWait();
            try {
                TimeUnit.MILLISECONDS.sleep(2);
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
                throw new IOException("interrupted while ratelimitd starts", e);
            }
        }
    }

    public Path socket() {
        return folder.resolve("socket");
    }

    /** A patient client of this daemon; it is closed with the daemon. */
    public RateLimitClient client() {
        return client;
    }

    /** Moves the time of the limits. */
    public void advance(Duration duration) {
        nowMicros += duration.toNanos() / 1000;
        try {
            client.callAsync("test_clock", List.of(nowMicros), CallOptions.DEFAULTS).join();
        } catch (CompletionException e) {
            throw e.getCause() instanceof RuntimeException cause ? cause : e;
        }
    }

    /** Makes every limit unused, by letting all their windows end. Slots stay with their holders. */
    public void resetAll() {
        advance(LONGER_THAN_ANY_LIMIT);
    }

    @Override
    public void close() {
        if (client != null) client.close();
        client = null;
        if (process != null) {
            process.destroy();
            try {
                if (!process.waitFor(START_S, TimeUnit.SECONDS)) process.destroyForcibly();
            } catch (InterruptedException e) {
                process.destroyForcibly();
                Thread.currentThread().interrupt();
            }
        }
        process = null;
        if (folder == null) return;
        for (String name : List.of("ratelimitd.yaml", "log", "socket", "socket.lock", "")) {
            try {
                Files.deleteIfExists(folder.resolve(name));
            } catch (IOException ignored) {
                /* a file in the temporary folder stays */
            }
        }
        folder = null;
    }

    @Override
    public void beforeAll(ExtensionContext context) {
        start();
    }

    @Override
    public void beforeEach(ExtensionContext context) {
        start();
        resetAll();
    }

    @Override
    public void afterAll(ExtensionContext context) {
        close();
    }
}
