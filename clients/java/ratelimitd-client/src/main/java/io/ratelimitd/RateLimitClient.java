package io.ratelimitd;

import io.ratelimitd.Transport.Answer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Executor;
import java.util.concurrent.ForkJoinPool;
import java.util.concurrent.ForkJoinWorkerThread;
import java.util.function.BiConsumer;
import java.util.function.Function;
import java.util.stream.Collectors;

/**
 * Asks ratelimitd. One client, with one connection, serves any number of threads; open one per process.
 *
 * <p>A denial is a value. A call throws {@link UnavailableException} if the daemon gave no answer and
 * {@link RefusedException} for a mistake in the program or the configuration. A blocking call that is interrupted throws
 * {@link CancellationException} and leaves the thread interrupted. Cancelling the future of an asynchronous call gives it
 * up. Either way nothing else is disturbed, and a slot or reservation that is granted too late is given back.
 */
public final class RateLimitClient implements AutoCloseable {
    public static final Duration DEFAULT_TIMEOUT = Duration.ofMillis(250);
    private static final System.Logger LOGGER = System.getLogger(RateLimitClient.class.getName());
    private static final int MAX_SOCKET_BYTES = 107; /* of struct sockaddr_un, without its NUL */
    private static final String DEFAULT_SOCKET = "/run/ratelimitd/ratelimitd.sock";

    private final Transport transport;
    private final Duration timeout;
    private final Executor executor;
    private final List<BiConsumer<? super List<Check>, ? super Decision>> hooks = new CopyOnWriteArrayList<>();
    private final Counters counters = new Counters();
    private final Denials denials;

    private RateLimitClient(Builder builder) {
        Path socket = builder.socket != null ? builder.socket : defaultSocket();
        timeout = builder.timeout;
        executor = builder.executor;
        hooks.add(builder.onDecision);
        denials = new Denials(builder.rememberDenials);
        if (builder.transport != null) transport = builder.transport;
        else transport = builder.enabled ? new SocketTransport(socket) : new AllowAll();
        if (!builder.enabled) LOGGER.log(System.Logger.Level.WARNING, builder.isDisabledByEnvironment
                ? "RATELIMIT_ENABLED=0: every call is allowed, and nothing is counted"
                : "the client is not enabled: every call is allowed, and nothing is counted");
    }

    /** A client with every default. It connects when it is first used. */
    public static RateLimitClient open() {
        return builder().build();
    }

    public static Builder builder() {
        return new Builder();
    }

    /** Shared by all clients. A callback that waits for another one gets a thread more. */
    private static final class Callbacks {
        static final ForkJoinPool POOL = new ForkJoinPool(Math.max(2, Runtime.getRuntime().availableProcessors()), pool -> {
            ForkJoinWorkerThread thread = ForkJoinPool.defaultForkJoinWorkerThreadFactory.newThread(pool);
            thread.setName("ratelimitd-" + thread.getPoolIndex());
            thread.setDaemon(true);
            thread.setContextClassLoader(RateLimitClient.class.getClassLoader());
            return thread;
        }, null, true);
    }

    private static Path defaultSocket() {
        String path = System.getenv("RATELIMIT_SOCKET");
        return checked(Path.of(path == null || path.isEmpty() ? DEFAULT_SOCKET : path));
    }

    private static Path checked(Path path) {
        int bytes = path.toString().getBytes(StandardCharsets.UTF_8).length;
        if (bytes == 0 || bytes > MAX_SOCKET_BYTES)
            throw new IllegalArgumentException("the path of a socket has 1 to " + MAX_SOCKET_BYTES + " bytes: '" + path
                    + "'");
        return path;
    }

    public static final class Builder {
        private Path socket;
        private Duration timeout = DEFAULT_TIMEOUT;
        private Executor executor = Callbacks.POOL;
        private Transport transport;
        private Duration rememberDenials = Duration.ZERO;
        private boolean isDisabledByEnvironment = "0".equals(System.getenv("RATELIMIT_ENABLED"));
        private boolean enabled = !isDisabledByEnvironment;
        private BiConsumer<? super List<Check>, ? super Decision> onDecision = (checks, decision) -> { };

        private Builder() {
        }

        /** Default: the environment's RATELIMIT_SOCKET, else /run/ratelimitd/ratelimitd.sock. */
        public Builder socket(Path path) {
            socket = checked(path);
            return this;
        }

        /** How long a call waits for its answer, connecting included. Default: 250 ms. */
        public Builder timeout(Duration duration) {
            timeout = positive(duration);
            return this;
        }

        /**
         * For this long, and not longer than its retry time, the client repeats a denial of check and check_all by itself
         * (source `deny_cache`). At most 1024 are remembered. Not for policies with `count_denied`, which do not see what is
         * answered so. Default: zero, never.
         */
        public Builder rememberDenials(Duration duration) {
            if (duration.isNegative())
                throw new IllegalArgumentException("denials are remembered for zero or longer, not " + duration);
            rememberDenials = duration;
            return this;
        }

        /** Runs what depends on the futures of asynchronous calls. Default: a pool of the client's own, with a thread for each
         * processor; the common pool starts one for each call if there are one or two processors. */
        public Builder executor(Executor runs) {
            executor = runs;
            return this;
        }

        /** Runs after each decision of a check, check_all, acquire and reserve, and of each member of a check_many; in
         * the calling thread, or of an asynchronous call in the executor. What it throws is logged. */
        public Builder onDecision(BiConsumer<? super List<Check>, ? super Decision> hook) {
            onDecision = hook;
            return this;
        }

        /** False: every call is allowed, and no daemon is asked. Default: true, unless RATELIMIT_ENABLED is 0. */
        public Builder enabled(boolean isEnabled) {
            enabled = isEnabled;
            isDisabledByEnvironment = false;
            return this;
        }

        /** In place of the socket: for tests. */
        public Builder transport(Transport fake) {
            transport = fake;
            return this;
        }

        public RateLimitClient build() {
            return new RateLimitClient(this);
        }
    }

    /* ---- checks ---- */

    public Decision check(String policy, String key) {
        return check(Check.of(policy, key));
    }

    public Decision check(String policy, String key, long cost) {
        return check(Check.of(policy, key, cost));
    }

    public Decision check(Check check) {
        return check(check, CallOptions.DEFAULTS);
    }

    public Decision check(Check check, CallOptions options) {
        return now(checkCall(check, options));
    }

    public CompletableFuture<Decision> checkAsync(String policy, String key) {
        return checkAsync(Check.of(policy, key), CallOptions.DEFAULTS);
    }

    public CompletableFuture<Decision> checkAsync(Check check, CallOptions options) {
        return later(checkCall(check, options));
    }

    private Op<Decision> checkCall(Check check, CallOptions options) {
        Denials.Question question = question("check", List.of(check), options);
        Op<Decision> repeated = repeated(question);
        if (repeated != null) return repeated;

        long since = Call.clock();
        List<Object> params = check.params();
        if (!options.wire().isEmpty()) {
            Map<String, Object> sent = new LinkedHashMap<>(options.wire());
            if (check.cost() != 1) sent.put("cost", check.cost());
            params = new ArrayList<>(params.subList(0, 2));
            params.add(sent);
        }
        return op("check", params, options, answer -> {
            Decision decision = Decision.of(answer.result(), options.asked(check.cost())).named(List.of(check));
            if (question != null) denials.keep(question, decision, since);
            return decided(List.of(check), decision);
        }, true);
    }

    /** null: a denial of this is not remembered. */
    private Denials.Question question(String method, List<Check> checks, CallOptions options) {
        Map<String, Object> wire = options.wire();
        boolean isAlwaysSent = denials.isOff() || wire.containsKey("request_id") || wire.containsKey("at_most");
        return isAlwaysSent ? null : new Denials.Question(method, List.copyOf(checks), wire.get("max_wait_ms"));
    }

    /** The denial that is remembered; null: there is none. */
    private Op<Decision> repeated(Denials.Question question) {
        Decision denial = question == null ? null : denials.find(question);
        if (denial == null) return null;
        counters.countRemembered();
        return Op.known(decided(question.checks(), denial));
    }

    /** Several checks as one: all are charged, or none is. {@link Decision#members} has each one's own decision. */
    public Decision checkAll(Check... members) {
        return checkAll(List.of(members), CallOptions.DEFAULTS);
    }

    public Decision checkAll(List<Check> members, CallOptions options) {
        return now(checkAllCall(members, options));
    }

    public CompletableFuture<Decision> checkAllAsync(List<Check> members, CallOptions options) {
        return later(checkAllCall(members, options));
    }

    private Op<Decision> checkAllCall(List<Check> members, CallOptions options) {
        Denials.Question question = question("check_all", members, options);
        Op<Decision> repeated = repeated(question);
        if (repeated != null) return repeated;

        long since = Call.clock();
        List<Object> params = new ArrayList<>(2);
        params.add(members.stream().map(Check::params).toList());
        addOptions(params, options);
        return op("check_all", params, options, answer -> {
            Decision decision = Decision.ofAll(answer.result(), members).named(members);
            if (question != null) denials.keep(question, decision, since);
            return decided(members, decision);
        }, true);
    }

    /** Several checks in one call, each decided by itself; the decisions are in the same order. */
    public List<Decision> checkMany(List<Check> members) {
        return checkMany(members, CallOptions.DEFAULTS);
    }

    public List<Decision> checkMany(List<Check> members, CallOptions options) {
        return now(checkManyCall(members, options));
    }

    public CompletableFuture<List<Decision>> checkManyAsync(List<Check> members, CallOptions options) {
        return later(checkManyCall(members, options));
    }

    private Op<List<Decision>> checkManyCall(List<Check> members, CallOptions options) {
        List<Object> params = new ArrayList<>(2);
        params.add(members.stream().map(Check::params).toList());
        addOptions(params, options); /* the daemon has none, and refuses them */
        return op("check_many", params, options, answer -> {
            List<Decision> decisions = Decision.listOf(answer.result(), members);
            List<Decision> named = new ArrayList<>(decisions.size());
            for (int i = 0; i < decisions.size(); i++) {
                List<Check> member = members.subList(i, i + 1);
                named.add(decided(member, decisions.get(i).named(member)));
            }
            return named;
        }, true);
    }

    /* ---- looking, and giving back ---- */

    /** The decision that a check of this cost would get now; nothing is charged. */
    public Decision peek(Check check) {
        return now(peekCall(check, CallOptions.DEFAULTS));
    }

    /** How much is available now? */
    public Decision peek(String policy, String key) {
        return peek(Check.of(policy, key, 0));
    }

    public CompletableFuture<Decision> peekAsync(Check check, CallOptions options) {
        return later(peekCall(check, options));
    }

    private Op<Decision> peekCall(Check check, CallOptions options) {
        return op("peek", withCost(check), options,
                answer -> Decision.of(answer.result(), check.cost()).named(List.of(check)), false);
    }

    /** Why would a check be answered so? The fields are those of `explain` in PROTOCOL.md. */
    @SuppressWarnings("unchecked")
    public Map<String, Object> explain(Check check) {
        return now(op("explain", withCost(check), CallOptions.DEFAULTS, answer -> {
            Decision.of(answer.result(), check.cost());
            return (Map<String, Object>) answer.result();
        }, false));
    }

    /** Forgets what the key has used; `policy/limit` forgets that of one limit. True: there was anything to forget. */
    public boolean reset(String policy, String key) {
        return now(resetCall(Check.of(policy, key), CallOptions.DEFAULTS));
    }

    public CompletableFuture<Boolean> resetAsync(Check policyAndKey, CallOptions options) {
        return later(resetCall(policyAndKey, options));
    }

    private Op<Boolean> resetCall(Check check, CallOptions options) {
        return changing(check, op("reset", check.params().subList(0, 2), options, answer -> flag(answer, "removed"), false));
    }

    /** Gives back units that the key was charged; {@link Decision#refunded} is how many. */
    public Decision refund(String policy, String key, long units) {
        return refund(Check.of(policy, key, units), CallOptions.DEFAULTS);
    }

    /** @param check its cost is what is given back */
    public Decision refund(Check check, CallOptions options) {
        return now(refundCall(check, options));
    }

    public CompletableFuture<Decision> refundAsync(Check check, CallOptions options) {
        return later(refundCall(check, options));
    }

    private Op<Decision> refundCall(Check check, CallOptions options) {
        List<Object> params = withCost(check);
        addOptions(params, options);
        return changing(check, op("refund", params, options,
                answer -> Decision.of(answer.result(), 0).named(List.of(check)), false));
    }

    /** What was denied before it is not certain any more: neither when it is sent, nor when it has taken effect. */
    private <T> Op<T> changing(Check subject, Op<T> op) {
        denials.forget(subject);
        return new Op<>(op.request, answer -> {
            denials.forget(subject);
            return op.read.apply(answer);
        }, op.counts, null);
    }

    private static List<Object> withCost(Check check) {
        List<Object> params = new ArrayList<>(check.params().subList(0, 2));
        params.add(check.cost());
        return params;
    }

    /* ---- slots and reservations ---- */

    /**
     * Takes a slot of a concurrency limit, and holds it until it is closed.
     *
     * @throws DeniedException all slots are taken
     */
    public Slot acquire(String policy, String key) {
        return acquire(Check.of(policy, key), CallOptions.DEFAULTS);
    }

    /** Here a denial is a value: a slot that is not held. */
    public Slot tryAcquire(Check policyAndKey, CallOptions options) {
        return now(acquireCall(policyAndKey, options));
    }

    public Slot acquire(Check policyAndKey, CallOptions options) {
        Slot slot = tryAcquire(policyAndKey, options);
        if (!slot.decision().allowed()) throw new DeniedException(policyAndKey.policy().name(), slot.decision());
        return slot;
    }

    /** Here a denial is a value: a slot that is not held. */
    public CompletableFuture<Slot> acquireAsync(Check policyAndKey, CallOptions options) {
        return later(acquireCall(policyAndKey, options));
    }

    private Op<Slot> acquireCall(Check check, CallOptions options) {
        List<Object> params = new ArrayList<>(check.params().subList(0, 2));
        addOptions(params, options);
        return op("acquire", params, options, answer -> {
            Decision decision = Decision.of(answer.result(), 1).named(List.of(check));
            if (decision.allowed() && decision.slot() == null) throw Decision.invalid("an acquire without `slot`");
            Slot slot = new Slot(this, decision, answer.link());
            if (slot.isHeld()) answer.link().hold(slot);
            decided(List.of(check), slot.decision());
            return slot;
        }, true);
    }

    Op<Boolean> release(Slot slot) {
        slot.link().drop(slot);
        return op("release", List.of(slot.id()), CallOptions.DEFAULTS, answer -> flag(answer, "released"), false);
    }

    /**
     * Charges an estimate now; {@link Reservation#settle} corrects it.
     *
     * @param ttl the time limit: what is not settled then is given back. Longer than the work can take
     * @throws DeniedException the estimate does not fit
     */
    public Reservation reserve(String policy, String key, long estimate, Duration ttl) {
        return reserve(Check.of(policy, key, estimate), CallOptions.DEFAULTS.ttl(ttl));
    }

    /** Here a denial is a value: a reservation that is not open. @param check its cost is the estimate */
    public Reservation tryReserve(Check check, CallOptions options) {
        if (chargesFirst(check)) return new Reservation(this, check, check(check, options.ofCheck()));

        Reservation reservation = now(reserveCall(check, options));
        Check possible = clamped(check, options, reservation.decision());
        return possible == check ? reservation : now(reserveCall(possible, options));
    }

    /** @param check its cost is the estimate */
    public Reservation reserve(Check check, CallOptions options) {
        Reservation reservation = tryReserve(check, options);
        if (!reservation.decision().allowed())
            throw new DeniedException(check.policy().name(), reservation.decision());
        return reservation;
    }

    /** Here a denial is a value: a reservation that is not open. */
    public CompletableFuture<Reservation> reserveAsync(Check check, CallOptions options) {
        if (chargesFirst(check))
            return checkAsync(check, options.ofCheck()).thenApply(decision -> new Reservation(this, check, decision));

        CompletableFuture<Reservation> first = later(reserveCall(check, options));
        if (!options.clamps()) return first;
        return first.thenCompose(reservation -> {
            Check possible = clamped(check, options, reservation.decision());
            return possible == check ? CompletableFuture.completedFuture(reservation) : later(reserveCall(possible, options));
        });
    }

    /** A daemon that reserves by the names of policies alone: inline settings are checked, and refunded what is not used. */
    private boolean chargesFirst(Check check) {
        return check.policy().isInline() && !transport.features().contains("reserve_inline");
    }

    /** What to reserve in place of an estimate that the policy can never admit: its capacity; else the same. */
    private static Check clamped(Check check, CallOptions options, Decision decision) {
        boolean isNever = !decision.allowed() && decision.retryAfterMs() < 0;
        boolean hasLess = 0 < decision.limit() && decision.limit() < check.cost();
        return options.clamps() && isNever && hasLess ? check.withCost(decision.limit()) : check;
    }

    private Op<Reservation> reserveCall(Check check, CallOptions options) {
        List<Object> params = withCost(check);
        addOptions(params, options);
        return op("reserve", params, options, answer -> {
            Decision decision = Decision.of(answer.result(), check.cost()).named(List.of(check));
            if (decision.allowed() && decision.reservation() == null)
                throw Decision.invalid("a reserve without `reservation`");
            return new Reservation(this, check, decided(List.of(check), decision));
        }, true);
    }

    Op<Decision> settle(Reservation reservation, long actual) {
        Check charged = reservation.check();
        if (!reservation.id().isEmpty()) return ending(reservation, "settle", List.of(reservation.id(), actual));
        if (actual < charged.cost()) return refundCall(charged.withCost(charged.cost() - actual), CallOptions.DEFAULTS);
        long more = actual - charged.cost();
        return checkCall(charged.withCost(more), more == 0 ? CallOptions.DEFAULTS : CallOptions.DEFAULTS.atMost(more));
    }

    Op<Decision> cancel(Reservation reservation) {
        return reservation.id().isEmpty() ? refundCall(reservation.check(), CallOptions.DEFAULTS)
                : ending(reservation, "cancel", List.of(reservation.id()));
    }

    private Op<Decision> ending(Reservation reservation, String method, List<Object> params) {
        return op(method, params, CallOptions.DEFAULTS,
                answer -> Decision.of(answer.result(), 0).named(List.of(reservation.check())), false);
    }

    /* ---- the daemon ---- */

    /** The configured policies, with the fields of `policies` in PROTOCOL.md. */
    public List<Map<String, Object>> policies() {
        return now(policiesCall(CallOptions.DEFAULTS));
    }

    public CompletableFuture<List<Map<String, Object>>> policiesAsync(CallOptions options) {
        return later(policiesCall(options));
    }

    @SuppressWarnings("unchecked")
    private Op<List<Map<String, Object>>> policiesCall(CallOptions options) {
        return op("policies", List.of(), options, answer -> {
            if (answer.result() instanceof List<?> list && list.stream().allMatch(Map.class::isInstance))
                return (List<Map<String, Object>>) list;
            throw Decision.invalid("not a list of policies");
        }, false);
    }

    /** The daemon's counters and gauges by their names in PROTOCOL.md. */
    public Map<String, Long> stats() {
        return now(op("stats", List.of(), CallOptions.DEFAULTS, answer -> {
            if (!(answer.result() instanceof Map<?, ?> map))
                throw Decision.invalid("not a map of numbers");
            Map<String, Long> numbers = new LinkedHashMap<>();
            map.forEach((name, value) -> {
                if (name instanceof String key && value instanceof Long number)
                    numbers.put(key, number); // the daemon also has texts, for people
            });
            return numbers;
        }, false));
    }

    /** Any method of the protocol, with its plain answer. Nothing is undone when it is given up. */
    public CompletableFuture<Object> callAsync(String method, List<Object> params, CallOptions options) {
        return later(op(method, params, options, Answer::result, false));
    }

    /**
     * For the start of a program: are these policies configured, and may it send settings in place of names? So that a
     * typing error is found before the first request.
     *
     * @throws RefusedException UNKNOWN_POLICY with {@link RefusedException#missing}, or NOT_PERMITTED
     * @throws UnavailableException it cannot be known now
     */
    public void verify(Collection<String> names, boolean usesInline) {
        if (transport instanceof AllowAll) return; /* it knows every policy */

        List<Map<String, Object>> policies = policies();
        Set<Object> known = policies.stream().map(policy -> policy.get("name")).collect(Collectors.toSet());
        List<String> missing = names.stream().distinct().filter(name -> !known.contains(name)).sorted().toList();
        if (!missing.isEmpty())
            throw new RefusedException("UNKNOWN_POLICY",
                    "the daemon's configuration has no policy " + String.join(", ", missing), missing, false);

        List<String> unseen = policies.stream().filter(policy -> names.contains(policy.get("name")))
                .filter(RateLimitClient::countsDenied).map(policy -> (String) policy.get("name")).toList();
        if (!denials.isOff() && !unseen.isEmpty())
            LOGGER.log(System.Logger.Level.WARNING, "denials are remembered, so policies with count_denied do not see them"
                    + " all: " + String.join(", ", unseen) + ". Do not use rememberDenials with these");
        if (!usesInline) return;

        try {
            peek(Check.of(Policy.of(1, "1s"), "verify", 0));
        } catch (RefusedException e) {
            if (!e.code().equals("NOT_PERMITTED")) throw e;
            throw new RefusedException(e.code(), "limits are written in the program, but the daemon's configuration"
                    + " lacks `inline: {allow: true}` (" + e.getMessage() + ")");
        } catch (UnavailableException e) {
            if (e.kind() != UnavailableException.Kind.STORE_UNAVAILABLE) throw e; /* permitted, only not known now */
        }
    }

    private static boolean countsDenied(Map<String, Object> policy) {
        return policy.get("limits") instanceof List<?> limits && limits.stream()
                .anyMatch(limit -> limit instanceof Map<?, ?> settings && Boolean.TRUE.equals(settings.get("count_denied")));
    }

    public Counters counters() {
        return counters;
    }

    /** One more hook, as {@link Builder#onDecision} has it. */
    public void onDecision(BiConsumer<? super List<Check>, ? super Decision> hook) {
        hooks.add(hook);
    }

    /** Calls without an answer now. */
    public int pending() {
        return transport.pending();
    }

    /** Ends the connection, and with it every slot. Calls without an answer end as LOST. */
    @Override
    public void close() {
        transport.close();
    }

    /* ---- the way of every call ---- */

    /**
     * A call and how to read its answer.
     *
     * @param counts a failure of it goes into the counters
     * @param known  the result, if the daemon need not be asked; else null
     */
    record Op<T>(Request request, Function<Answer, T> read, boolean counts, T known) {
        static <T> Op<T> known(T result) {
            return new Op<>(null, null, false, result);
        }

        boolean isKnown() {
            return known != null;
        }
    }

    private <T> Op<T> op(String method, List<Object> params, CallOptions options, Function<Answer, T> read,
                         boolean counts) {
        Duration wait = options.timeout() == null ? timeout : options.timeout();
        return new Op<>(new Request(method, params, wait, options.resends()), read, counts, null);
    }

    <T> T now(Op<T> op) {
        if (op.isKnown()) return op.known;
        boolean wasInterrupted = op.request.givesBack() && Thread.interrupted(); /* it is sent all the same */
        if (Thread.currentThread().isInterrupted()) throw new CancellationException("the thread is interrupted");

        CompletableFuture<Answer> answer = transport.call(op.request);
        try {
            return op.read.apply(answer.get());
        } catch (InterruptedException e) {
            abandon(op, answer);
            Thread.currentThread().interrupt();
            throw new CancellationException("interrupted while waiting for the daemon");
        } catch (ExecutionException e) {
            throw failed(op, e.getCause());
        } catch (RateLimitException e) { /* of reading */
            throw failed(op, e);
        } finally {
            if (wasInterrupted) Thread.currentThread().interrupt();
        }
    }

    <T> CompletableFuture<T> later(Op<T> op) {
        if (op.isKnown()) return CompletableFuture.completedFuture(op.known);

        CompletableFuture<Answer> answer = transport.call(op.request);
        CompletableFuture<T> result = answer.handleAsync((value, error) -> {
            if (error != null) throw failed(op, error);
            try {
                return op.read.apply(value);
            } catch (RateLimitException e) {
                throw failed(op, e);
            }
        }, executor);
        result.whenComplete((value, error) -> {
            if (result.isCancelled()) abandon(op, answer);
        });
        return result;
    }

    /** No caller waits for it. */
    void forget(Op<?> op) {
        if (!op.isKnown()) transport.call(op.request);
    }

    private void abandon(Op<?> op, CompletableFuture<Answer> answer) {
        if (answer.cancel(false) || answer.isCompletedExceptionally()) return; /* the transport undoes a late yes */
        Request undo = op.request.undo(answer.join().result());
        if (undo != null) transport.call(undo);
    }

    private RuntimeException failed(Op<?> op, Throwable error) {
        Throwable cause = error instanceof CompletionException && error.getCause() != null ? error.getCause() : error;
        if (!(cause instanceof RateLimitException known))
            return cause instanceof RuntimeException runtime ? runtime : new IllegalStateException(cause);

        if (op.counts) counters.count(known);
        return known instanceof UnavailableException gone ? gone.here() : known;
    }

    private Decision decided(List<Check> checks, Decision decision) {
        counters.count(decision);
        for (BiConsumer<? super List<Check>, ? super Decision> hook : hooks) {
            try {
                hook.accept(checks, decision);
            } catch (RuntimeException e) { /* a hook must not make a failure of a decision */
                LOGGER.log(System.Logger.Level.WARNING, "the hook onDecision has thrown", e);
            }
        }
        return decision;
    }

    private static boolean flag(Answer answer, String name) {
        if (answer.result() instanceof Map<?, ?> map && map.get(name) instanceof Boolean value) return value;
        throw Decision.invalid("a map without `" + name + "`");
    }

    private static void addOptions(List<Object> params, CallOptions options) {
        if (!options.wire().isEmpty()) params.add(options.wire());
    }

    /** Where what depends on the futures of asynchronous calls runs. */
    public Executor executor() {
        return executor;
    }

    static Duration positive(Duration duration) {
        if (duration.isNegative() || duration.isZero())
            throw new IllegalArgumentException("a timeout is longer than zero, not " + duration);
        return duration;
    }
}
