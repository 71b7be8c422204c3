package io.ratelimitd;

import io.ratelimitd.UnavailableException.Kind;
import java.io.IOException;
import java.net.StandardProtocolFamily;
import java.net.UnixDomainSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.SelectionKey;
import java.nio.channels.Selector;
import java.nio.channels.SocketChannel;
import java.nio.file.Path;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import java.util.stream.Collectors;

/**
 * One connection and the calls on it. Only the transport's thread uses it.
 *
 *     queue ──fill──▶ out ──write──▶ daemon          queue: no byte has left, so these may go on another connection
 *     pending, by msgid ◀──framer──read── daemon     pending: queue, out, and what waits for its answer
 */
final class Connection {
    private static final int BUFFER_BYTES = 64 << 10;
    private static final int MAX_ORPHANS = 4096;
    private static final int READS_AT_ONCE = 64;

    private final SocketChannel channel;
    private final SelectionKey key;
    private final Breaker breaker;
    private final Link link = new Link();
    private final Framer framer = new Framer();
    private final Map<Long, Call> pending = new HashMap<>();
    private final ArrayDeque<Call> queue = new ArrayDeque<>();
    private Set<String> features = Set.of(); /* what the daemon's answer to hello lists */
    private final ByteBuffer in;
    private final ByteBuffer out;
    private int copied;  /* bytes of the queue's first message that are in `out` */
    private long filled; /* bytes that ever went into `out` */
    private long written;
    private long lastMsgid = -1;
    private int orphans;
    private String finalError = ""; /* what the daemon sent before it closed */

    private Connection(SocketChannel channel, SelectionKey key, Breaker breaker, ByteBuffer in, ByteBuffer out) {
        this.channel = channel;
        this.key = key;
        this.breaker = breaker;
        this.in = in;
        this.out = out;
    }

    /** A Unix socket connects at once, or (no daemon, full backlog) not at all. */
    static Connection open(Path path, Selector selector, Breaker breaker) throws IOException {
        SocketChannel channel = SocketChannel.open(StandardProtocolFamily.UNIX);
        try {
            channel.configureBlocking(false);
            if (!channel.connect(UnixDomainSocketAddress.of(path))) throw new IOException("it does not accept");
            SelectionKey key = channel.register(selector, SelectionKey.OP_READ);
            return new Connection(channel, key, breaker, ByteBuffer.allocateDirect(BUFFER_BYTES),
                    ByteBuffer.allocateDirect(BUFFER_BYTES));
        } catch (IOException | RuntimeException e) {
            channel.close();
            throw e;
        }
    }

    void enqueue(Call call) {
        lastMsgid++;
        call.number(lastMsgid, features);
        call.sentFrom = -1;
        pending.put(lastMsgid, call);
        queue.add(call);
    }

    Set<String> features() {
        return features;
    }

    Collection<Call> pending() {
        return pending.values();
    }

    boolean isReadable() {
        return key.isValid() && key.isReadable();
    }

    /** Takes every answer that has arrived. An exception means that the connection has ended. */
    void read() throws IOException {
        for (int i = 0; i < READS_AT_ONCE; i++) {
            in.clear();
            int n = channel.read(in);
            if (n == 0) return;
            if (n < 0) throw new IOException("the daemon has closed the connection");

            framer.add(in.flip());
            try {
                while (framer.hasNext()) take(framer.take());
            } catch (ProtocolException e) {
                throw e;
            } catch (IOException | RuntimeException e) {
                throw new ProtocolException(e.getMessage());
            }
            if (n < in.capacity()) return;
        }
    }

    /** The peer does not speak the protocol. */
    static final class ProtocolException extends IOException {
        private static final long serialVersionUID = 1L;

        ProtocolException(String message) {
            super("the answer is not valid: " + message);
        }
    }

    private void take(Object answer) throws ProtocolException {
        if (!(answer instanceof List<?> list) || list.size() != 4 || !Long.valueOf(1).equals(list.get(0)))
            throw new ProtocolException("it is not a response");
        String error = Wire.text(list.get(2));
        Object result = list.get(3);
        if (list.get(1) == null && error != null) {
            finalError = error;
            return;
        }
        if (!(list.get(1) instanceof Long msgid)) throw new ProtocolException("its msgid is not an integer");

        Call call = pending.remove(msgid);
        if (call == null) return; /* of a call that has timed out, or of one that never was */
        if (call.isOrphan) orphans--;
        if (!call.isOurs && !call.isOrphan) breaker.answered();

        if (list.get(2) == null && result != null) answered(call, result);
        else if (error != null && result == null) refused(call, error);
        else call.fail(Kind.PROTOCOL, true, "", "the answer is not valid: it has not one of error and result", null);
    }

    private void answered(Call call, Object result) {
        if (call.isOurs && call.request.method().equals("hello")) features = features(result);
        if (call.complete(new Transport.Answer(result, link))) return;

        /* no caller waits any more: what it grants must not stay taken */
        Request undo = call.request.undo(result);
        if (undo != null) enqueue(new Call(undo, true));
    }

    private static Set<String> features(Object hello) {
        return hello instanceof Map<?, ?> fields && fields.get("features") instanceof List<?> listed
                ? listed.stream().map(Wire::text).filter(Objects::nonNull).collect(Collectors.toUnmodifiableSet()) : Set.of();
    }

    /** No caller waits for it any more: the daemon gives back what it has granted, or will grant, if it can do that. */
    void giveUp(Call call) {
        long msgid = Wire.msgid(call.message);
        if (call.sentFrom < 0 || pending.get(msgid) != call || !features.contains("abandon")) return;
        pending.remove(msgid);
        queue.add(Call.abandoning(msgid));
        if (call.isProbe) breaker.unknown();
    }

    private static void refused(Call call, String text) {
        int colon = text.indexOf(": ");
        String code = colon < 0 ? text : text.substring(0, colon);
        switch (code) {
            case "OVERLOADED" -> call.fail(Kind.OVERLOADED, call.hasLeft, code, text, null);
            case "SHUTTING_DOWN" -> call.fail(Kind.SHUTTING_DOWN, call.hasLeft, code, text, null);
            case "STORE_UNAVAILABLE" -> call.fail(Kind.STORE_UNAVAILABLE, true, code, text, null);
            default -> call.completeExceptionally(
                    new RefusedException(code, call.request.method() + ": " + text, List.of(), call.hasLeft));
        }
    }

    /** Sends as much as the daemon takes. An exception means that the connection has ended. */
    void write() throws IOException {
        while (true) {
            fill();
            out.flip();
            if (!out.hasRemaining()) {
                out.clear();
                key.interestOps(SelectionKey.OP_READ);
                return;
            }
            int n;
            try {
                n = channel.write(out);
                written += n;
            } finally {
                out.compact();
            }
            if (n == 0) {
                key.interestOps(SelectionKey.OP_READ | SelectionKey.OP_WRITE);
                return;
            }
        }
    }

    private void fill() {
        while (out.hasRemaining() && !queue.isEmpty()) {
            Call call = queue.peek();
            if (copied == 0 && call.isDone() && !call.isOwed()) { /* its caller has given up */
                queue.remove();
                pending.remove(Wire.msgid(call.message));
                if (call.isProbe) breaker.unknown();
                continue;
            }
            if (copied == 0) call.sentFrom = filled;

            int n = Math.min(out.remaining(), call.message.length - copied);
            out.put(call.message, copied, n);
            filled += n;
            copied += n;
            if (copied < call.message.length) return;
            copied = 0;
            queue.remove();
        }
    }

    private boolean hasLeft(Call call) {
        return call.sentFrom >= 0 && call.sentFrom < written;
    }

    /**
     * Ends the calls whose time is over.
     *
     * @return when the next one's is; Long.MAX_VALUE if nothing waits
     * @throws IOException a peer that never answers has more late acquires than one connection may have
     */
    long expire(long now) throws IOException {
        long soonest = Long.MAX_VALUE;
        for (Iterator<Call> calls = pending.values().iterator(); calls.hasNext();) {
            Call call = calls.next();
            if (call.isOurs || call.isOrphan || call.sentFrom < 0 && call.isDone()) continue;
            if (call.deadline > now) {
                soonest = Math.min(soonest, call.deadline);
                continue;
            }

            boolean wasSent = call.sentFrom >= 0; /* what is in `out` will be written */
            boolean wasGivenUp = call.isDone();
            call.fail(Kind.TIMEOUT, wasSent || call.hasLeft, "", "no answer within " + call.elapsedMs(now) + " ms", null);
            if (!wasGivenUp) breaker.timedOut(now);
            else if (call.isProbe) breaker.unknown();

            if (wasSent && call.request.canBeUndone() && features.contains("abandon")) {
                queue.add(Call.abandoning(Wire.msgid(call.message)));
                calls.remove();
            } else if (wasSent && call.request.canBeUndone()) {
                call.isOrphan = true;
                orphans++;
            } else if (wasSent) {
                calls.remove();
            } /* else fill() drops it, or sends what is owed */
        }
        if (orphans > MAX_ORPHANS) throw new IOException("too many acquires without an answer");
        return soonest;
    }

    /**
     * Closes it. Each call ends, or may go on another connection: then it is in the returned list.
     *
     * @param cause why; null if the client is closed
     */
    List<Call> close(IOException cause) {
        try {
            channel.close();
        } catch (IOException ignored) {
            /* it is gone either way */
        }
        link.lose();

        String code = finalError.contains(": ") ? finalError.substring(0, finalError.indexOf(": ")) : finalError;
        Kind kind = cause instanceof ProtocolException ? Kind.PROTOCOL : Kind.LOST;
        String what = cause == null ? "the client was closed"
                : finalError.isEmpty() ? "the connection was lost: " + cause.getMessage() : finalError;
        List<Call> again = new ArrayList<>();
        for (Call call : pending.values()) {
            if (call.isDone() || call.isOurs) continue;
            call.hasLeft |= hasLeft(call);
            if (call.isProbe) breaker.unknown();
            call.isProbe = false;

            boolean mayGoAgain = cause != null && kind == Kind.LOST && !call.wasRequeued
                    && (!call.hasLeft || call.request.mayRepeat());
            if (mayGoAgain) {
                call.wasRequeued = true;
                again.add(call);
            } else if (call.hasLeft || kind == Kind.PROTOCOL) call.fail(kind, call.hasLeft, code, what, cause);
            else call.fail(cause == null ? Kind.LOST : Kind.UNREACHABLE, false, code, what, cause);
        }
        pending.clear();
        return again;
    }
}
