package io.ratelimitd.benchmark;

import io.github.bucket4j.Bandwidth;
import io.github.bucket4j.Bucket;
import io.github.bucket4j.BucketConfiguration;
import io.github.bucket4j.distributed.ExpirationAfterWriteStrategy;
import io.github.bucket4j.redis.lettuce.Bucket4jLettuce;
import io.lettuce.core.RedisClient;
import io.ratelimitd.RateLimitClient;
import java.io.IOException;
import java.net.UnixDomainSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;

/**
 * What a check costs: this client, the bare socket, and bucket4j, all counting in one Redis. Arguments: the daemon's
 * socket, Redis' port. The rounds of the three alternate, so that a busy moment of the machine meets all of them.
 */
public final class Benchmark {
    private static final int WARMUP = 3000;
    private static final int CHECKS = 4000;
    private static final int ROUNDS = 5;
    private static final int KEYS = 1000;
    private static final long NEVER_FITS = 10_000_000;
    private static final int THREADS = 8;

    private interface Checker {
        boolean check(String key) throws IOException;
    }

    /** One way to check; each thread has a checker of its own, which may share what lies below it. */
    private record Way(String name, List<Checker> checkers, List<Long> nanos, List<Double> aSecond) {
        Way(String name, List<Checker> checkers) {
            this(name, checkers, new ArrayList<>(), new ArrayList<>());
        }
    }

    private Benchmark() {
    }

    public static void main(String[] args) throws Exception {
        Path socket = Path.of(args[0]);
        RedisClient redis = RedisClient.create("redis://127.0.0.1:" + args[1]);
        Duration patient = Duration.ofSeconds(10);
        try (RateLimitClient client = RateLimitClient.builder().socket(socket).timeout(patient).build();
             RateLimitClient remembering = RateLimitClient.builder().socket(socket).timeout(patient)
                     .rememberDenials(Duration.ofHours(1)).build()) {
            BucketConfiguration limit = BucketConfiguration.builder()
                    .addLimit(Bandwidth.builder().capacity(1_000_000).refillGreedy(1_000_000, Duration.ofSeconds(1)).build())
                    .build();
            var buckets = Bucket4jLettuce.casBasedBuilder(redis)
                    .expirationAfterWrite(ExpirationAfterWriteStrategy.basedOnTimeForRefillingBucketUpToMax(patient))
                    .build();
            Checker theirs = key -> {
                Bucket bucket = buckets.builder().build(key.getBytes(StandardCharsets.UTF_8), () -> limit);
                return bucket.tryConsume(1);
            };
            List<Checker> bare = new ArrayList<>();
            for (int i = 0; i < THREADS; i++) bare.add(bare(SocketChannel.open(UnixDomainSocketAddress.of(socket))));
            List<Way> ways = List.of(new Way("bare socket, one connection per thread", bare),
                    new Way("ratelimitd-client", all(key -> client.check("bench", key).allowed())),
                    new Way("ratelimitd-client, a remembered denial",
                            all(key -> !remembering.check("bench", key, NEVER_FITS).allowed())),
                    new Way("bucket4j with Redis (Lettuce)", all(theirs)));

            for (Way way : ways) alone(way, WARMUP, false);
            for (int round = 0; round < ROUNDS; round++)
                for (Way way : ways) {
                    alone(way, CHECKS, true);
                    together(way);
                }
            print(ways);
        } finally {
            redis.shutdown();
        }
    }

    private static List<Checker> all(Checker shared) {
        List<Checker> checkers = new ArrayList<>();
        for (int i = 0; i < THREADS; i++) checkers.add(shared);
        return checkers;
    }

    /** `check` as bytes, and as much of the answer as shows whether it is allowed. */
    private static Checker bare(SocketChannel channel) {
        ByteBuffer answer = ByteBuffer.allocate(4096);
        return key -> {
            byte[] head = {(byte) 0x94, 0, 1, (byte) 0xa5, 'c', 'h', 'e', 'c', 'k', (byte) 0x92, (byte) 0xa5, 'b', 'e', 'n',
                'c', 'h', (byte) (0xa0 + key.length())};
            ByteBuffer request = ByteBuffer.allocate(head.length + key.length());
            request.put(head).put(key.getBytes(StandardCharsets.US_ASCII)).flip();
            while (request.hasRemaining()) channel.write(request);
            answer.clear();
            if (channel.read(answer) < 0) throw new IOException("the daemon has closed the connection");
            return answer.get(4) == (byte) 0x88 || new String(answer.array(), 0, 20, StandardCharsets.ISO_8859_1)
                    .contains("allowed\u00c3");
        };
    }

    private static void alone(Way way, int n, boolean counts) throws IOException {
        Checker checker = way.checkers.get(0);
        for (int i = 0; i < n; i++) {
            long begun = System.nanoTime();
            if (!checker.check("k" + i % KEYS)) throw new IllegalStateException(way.name + ": decided otherwise");
            if (counts) way.nanos.add(System.nanoTime() - begun);
        }
    }

    private static void together(Way way) throws InterruptedException {
        CountDownLatch end = new CountDownLatch(THREADS);
        long begun = System.nanoTime();
        for (Checker checker : way.checkers) {
            new Thread(() -> {
                try {
                    for (int i = 0; i < CHECKS; i++) checker.check("k" + i % KEYS);
                } catch (IOException e) {
                    throw new IllegalStateException(e);
                } finally {
                    end.countDown();
                }
            }).start();
        }
        end.await();
        double seconds = (System.nanoTime() - begun) / (double) TimeUnit.SECONDS.toNanos(1);
        way.aSecond.add(THREADS * CHECKS / seconds);
    }

    private static void print(List<Way> ways) {
        System.out.printf(Locale.ROOT, "%-40s %10s %10s %24s%n", "counting in Redis", "p50", "p99",
                "checks/s, " + THREADS + " threads");
        for (Way way : ways) {
            long[] sorted = way.nanos.stream().mapToLong(Long::longValue).sorted().toArray();
            double[] rates = way.aSecond.stream().mapToDouble(Double::doubleValue).toArray();
            Arrays.sort(rates);
            System.out.printf(Locale.ROOT, "%-40s %7.1f us %7.1f us %24.0f%n", way.name, sorted[sorted.length / 2] / 1e3,
                    sorted[sorted.length * 99 / 100] / 1e3, rates[rates.length / 2]);
        }
    }
}
