package io.ratelimitd;

import io.ratelimitd.UnavailableException.Kind;
import java.io.IOException;
import java.nio.channels.Selector;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;

/**
 * One connection to the daemon for any number of callers, and the thread that alone touches it: interrupting a thread
 * in an operation on a Java channel closes the channel for everybody, so no caller may come near it.
 *
 *     caller ──submitted──▶ thread: read, begin what was submitted, write, end what is late ──▶ the call's future
 *
 * The thread reads before it writes, so it notices that an idle connection was closed before it sends a call there; and
 * it reads before it ends late calls, so an answer that has arrived counts however late the thread was.
 */
final class SocketTransport implements Transport {
    private static final int MAX_PENDING = 65536;
    private static final Request HELLO =
            new Request("hello", List.of(Map.of("describe", true)), Duration.ofDays(1), false);

    private final Path path;
    private final ConcurrentLinkedQueue<Call> submitted = new ConcurrentLinkedQueue<>();
    private final ConcurrentLinkedQueue<Call> givenUp = new ConcurrentLinkedQueue<>(); /* by their callers */
    private final AtomicInteger pending = new AtomicInteger();
    private final Object startLock = new Object();
    private volatile Selector selector; /* set once, with the thread */
    private Thread thread;
    private volatile boolean closed;
    private volatile Set<String> features = Set.of();

    /* what follows belongs to the thread */
    private final Breaker breaker = new Breaker();
    private final Backoff backoff = new Backoff();
    private Connection connection; /* null: none now */
    private IOException lastFailure;
    private long nextExpiry = Long.MAX_VALUE; /* no call is late before this */

    static { /* loads the classes of both directions, so that the first call's time does not go into that */
        byte[] message = Wire.pack(HELLO);
        try {
            Wire.unpack(message, 0, message.length);
        } catch (IOException e) {
            throw new ExceptionInInitializerError(e);
        }
    }

    SocketTransport(Path path) {
        this.path = path;
    }

    @Override
    public CompletableFuture<Answer> call(Request request) {
        Call call = new Call(request, false);
        if (pending.incrementAndGet() > MAX_PENDING && !call.isOwed()) {
            pending.decrementAndGet();
            call.fail(Kind.OVERLOADED, false, "", MAX_PENDING + " calls are in flight in this client", null);
            return call;
        }
        call.whenComplete((answer, error) -> {
            pending.decrementAndGet();
            if (!call.isCancelled() || !request.canBeUndone()) return;
            givenUp.add(call);
            wake();
        });

        if (selector == null) start();
        submitted.add(call);
        if (closed) endSubmitted();
        else wake();
        return call;
    }

    private void wake() {
        Selector selects = selector;
        if (selects != null) selects.wakeup();
    }

    @Override
    public Set<String> features() {
        return features;
    }

    @Override
    public int pending() {
        return pending.get();
    }

    private void start() {
        synchronized (startLock) {
            if (selector != null || closed) return;
            try {
                selector = Selector.open();
            } catch (IOException e) {
                throw new IllegalStateException("cannot open a selector", e);
            }
            thread = new Thread(this::run, "ratelimitd-client");
            thread.setDaemon(true);
            thread.start();
        }
    }

    @Override
    public void close() {
        Thread ends;
        synchronized (startLock) {
            closed = true;
            ends = thread;
        }
        if (ends == null) return;

        selector.wakeup();
        boolean interrupted = false;
        while (ends != Thread.currentThread() && ends.isAlive()) {
            try {
                ends.join();
            } catch (InterruptedException e) {
                interrupted = true;
            }
        }
        if (interrupted) Thread.currentThread().interrupt();
    }

    private void endSubmitted() {
        for (Call call = submitted.poll(); call != null; call = submitted.poll()) end(call);
    }

    private static void end(Call call) {
        call.fail(Kind.LOST, call.hasLeft, "", "the client is closed", null);
    }

    private void run() {
        long waitNanos = Long.MAX_VALUE;
        while (!closed) {
            try {
                select(waitNanos);
                waitNanos = tick();
            } catch (IOException | RuntimeException | Error e) { /* the thread must outlive everything */
                waitNanos = 0;
                lose(e instanceof IOException io ? io : new IOException(e));
            }
        }

        if (connection != null) {
            giveBack();
            connection.close(null);
        }
        connection = null;
        endSubmitted();
        try {
            selector.close();
        } catch (IOException ignored) {
            /* nothing depends on it any more */
        }
    }

    /** What gives units back goes out even now, as far as the daemon takes it at once. */
    private void giveBack() {
        try {
            for (Call call = submitted.poll(); call != null; call = submitted.poll()) {
                if (call.isOwed()) connection.enqueue(call);
                else end(call);
            }
            connection.write();
        } catch (IOException | RuntimeException ignored) {
            /* then the daemon ends slots with the connection, and reservations with their time */
        }
    }

    private void select(long waitNanos) throws IOException {
        if (waitNanos <= 0 || !submitted.isEmpty()) selector.selectNow();
        else if (waitNanos == Long.MAX_VALUE) selector.select();
        else selector.select(TimeUnit.NANOSECONDS.toMillis(waitNanos) + 1); /* whole ms, and never too early */
        Thread.interrupted(); /* an interrupted thread would close the channel */
    }

    /** One iteration of the thread. Returns how long there is nothing to do. */
    private long tick() throws IOException {
        if (connection != null && connection.isReadable()) read();
        selector.selectedKeys().clear();

        for (Call call = submitted.poll(); call != null; call = submitted.poll()) begin(call);
        for (Call call = givenUp.poll(); call != null; call = givenUp.poll())
            if (connection != null) connection.giveUp(call);
        if (connection == null) return Long.MAX_VALUE;

        long now = Call.clock();
        if (now >= nextExpiry) {
            read();
            nextExpiry = connection.expire(now);
        }
        connection.write(); /* also what undoes a late yes */
        return nextExpiry == Long.MAX_VALUE ? nextExpiry : nextExpiry - now;
    }

    private void read() throws IOException {
        connection.read();
        features = connection.features();
    }

    private void begin(Call call) {
        long now = Call.clock();
        if (call.isDone() && !call.isOwed()) return;
        boolean isHeldBack = breaker.isOpen() && !call.request.givesBack();
        if (isHeldBack && !breaker.admits(now)) {
            call.fail(Kind.BREAKER, call.hasLeft, "", "the last calls timed out, so the daemon is not asked now", null);
            return;
        }
        call.isProbe = isHeldBack;
        if (connection == null && !connect(now)) {
            if (call.isProbe) breaker.unknown();
            call.fail(call.hasLeft ? Kind.LOST : Kind.UNREACHABLE, call.hasLeft, "",
                    "no daemon at " + path + ": " + lastFailure.getMessage(), lastFailure);
            return;
        }
        if (connection.pending().size() >= 2 * MAX_PENDING && !call.isOwed()) { /* of callers who give up and ask again */
            call.fail(Kind.OVERLOADED, call.hasLeft, "", "too many calls have no answer yet", null);
            return;
        }
        connection.enqueue(call);
        nextExpiry = Math.min(nextExpiry, call.deadline);
    }

    private boolean connect(long now) {
        if (backoff.isWaiting(now)) return false;
        try {
            connection = Connection.open(path, selector, breaker);
        } catch (IOException | RuntimeException e) {
            lastFailure = e instanceof IOException io ? io : new IOException(e);
            backoff.failed(now);
            return false;
        }
        backoff.connected();
        connection.enqueue(new Call(HELLO, true));
        return true;
    }

    /** The connection has ended: what never left, and what may be repeated, goes on a new one. */
    private void lose(IOException cause) {
        if (connection == null) return;
        List<Call> again = new ArrayList<>(connection.close(cause));
        connection = null;
        features = Set.of();
        nextExpiry = Long.MAX_VALUE;
        submitted.addAll(again);
    }
}
