package io.ratelimitd.conformance;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.core.type.TypeReference;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.ratelimitd.CallOptions;
import io.ratelimitd.Check;
import io.ratelimitd.Counters;
import io.ratelimitd.Decision;
import io.ratelimitd.Key;
import io.ratelimitd.Policy;
import io.ratelimitd.RateLimitClient;
import io.ratelimitd.RefusedException;
import io.ratelimitd.Reservation;
import io.ratelimitd.Slot;
import io.ratelimitd.UnavailableException;
import io.ratelimitd.UnavailableException.Kind;
import io.ratelimitd.http.ClientAddress;
import io.ratelimitd.http.HeaderStyle;
import io.ratelimitd.http.HttpAnswer;
import io.ratelimitd.http.ServiceName;
import io.ratelimitd.spring.Declaring;
import io.ratelimitd.testing.FakeLimiter;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.LongAdder;
import java.util.function.Function;
import java.util.logging.Handler;
import java.util.logging.LogRecord;
import java.util.logging.Logger;

/** Carries out the commands of the conformance suite: JSON lines in, JSON lines out. */
public final class Driver {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final TypeReference<Map<String, Object>> OBJECT = new TypeReference<>() { };
    private static final TypeReference<Map<String, String>> ENVIRONMENT = new TypeReference<>() { };
    private static final PrintStream OUT = new PrintStream(System.out, false, StandardCharsets.UTF_8);

    private final Map<String, RateLimitClient> clients = new ConcurrentHashMap<>();
    private final Map<String, FakeLimiter> fakes = new ConcurrentHashMap<>();
    private final Map<String, Slot> slots = new ConcurrentHashMap<>();
    private final Map<String, Reservation> reservations = new ConcurrentHashMap<>();
    private final Map<Long, CompletableFuture<?>> running = new ConcurrentHashMap<>();

    public static void main(String[] args) throws IOException {
        say(JSON.createObjectNode().put("ready", true).put("pid", ProcessHandle.current().pid()));
        Logger.getLogger("").addHandler(new LogLines());
        Driver driver = new Driver();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) driver.carryOut(JSON.readTree(line));
        driver.clients.values().forEach(RateLimitClient::close);
        System.exit(0);
    }

    /** What is written into the log. */
    private static final class LogLines extends Handler {
        @Override
        public void publish(LogRecord line) {
            say(JSON.createObjectNode().put("event", "log").put("message", line.getMessage()));
        }

        @Override
        public void flush() {
            /* each line goes out at once */
        }

        @Override
        public void close() {
            /* it holds nothing */
        }
    }

    private static synchronized void say(JsonNode line) {
        OUT.println(line);
        OUT.flush();
    }

    private void carryOut(JsonNode command) {
        long id = command.path("id").asLong();
        try {
            begin(command).exceptionally(Driver::bug).thenAccept(answer -> say(answer.put("id", id)));
        } catch (RuntimeException e) {
            say(bug(e).put("id", id));
        }
    }

    private static ObjectNode bug(Throwable e) {
        e.printStackTrace();
        return JSON.createObjectNode().put("status", "bug").put("message", e.toString());
    }

    private static ObjectNode ok() {
        return JSON.createObjectNode().put("status", "ok");
    }

    /** Its answer, without an id, now or later. */
    private CompletableFuture<ObjectNode> begin(JsonNode c) {
        String name = c.path("client").asText();
        switch (c.path("do").asText()) {
            case "open": {
                RateLimitClient.Builder builder = RateLimitClient.builder();
                try {
                    if (c.hasNonNull("socket")) builder.socket(Path.of(c.get("socket").asText()));
                    if (c.hasNonNull("timeout_ms")) builder.timeout(ms(c.get("timeout_ms")));
                    if (c.hasNonNull("remember_denials_ms")) builder.rememberDenials(ms(c.get("remember_denials_ms")));
                    clients.put(name, builder.build());
                } catch (IllegalArgumentException e) {
                    return done(failure(e, false));
                }
                return done(ok());
            }
            case "fake":
                fakes.put(name, new FakeLimiter());
                clients.put(name, fakes.get(name).client());
                return done(ok());
            case "close":
                return CompletableFuture.supplyAsync(() -> {
                    if (clients.containsKey(name)) clients.get(name).close();
                    return ok();
                });
            case "stats":
                return done(stats(clients.get(name)));
            case "fake_allow_all":
                fakes.get(name).allowAll();
                return done(ok());
            case "fake_deny":
                long retryMs = c.path("retry_after_ms").asLong();
                fakes.get(name).deny(c.get("policy").asText(), retryMs < 0 ? null : Duration.ofMillis(retryMs));
                return done(ok());
            case "fake_unavailable":
                fakes.get(name).unavailable(Kind.valueOf(c.path("kind").asText("unreachable").toUpperCase(Locale.ROOT)));
                return done(ok());
            case "fake_calls":
                List<List<Object>> calls = new ArrayList<>();
                for (FakeLimiter.Asked asked : fakes.get(name).calls())
                    calls.add(asked.method().equals("acquire")
                            ? List.of(asked.method(), asked.policy(), asked.key())
                            : List.of(asked.method(), asked.policy(), asked.key(), asked.cost()));
                return done(ok().set("calls", JSON.valueToTree(calls)));
            case "slot_state":
                Slot slot = slots.get(c.get("slot").asText());
                return done(ok().put("held", slot.isHeld()).put("lost", slot.isLost()));
            case "cancel":
                CompletableFuture<?> call = running.get(c.get("call").asLong());
                if (call != null) call.cancel(true);
                return done(ok());
            case "block_ms":
                return CompletableFuture.supplyAsync(() -> stopped(c.get("ms").asLong()));
            case "threads":
                return CompletableFuture.supplyAsync(() -> threads(c));
            case "ip_key", "user_key", "join_key", "hashed_key", "parse_limit", "headers", "limit", "endpoint_key",
                 "service_name":
                return done(helper(c));
            default:
                return call(c);
        }
    }

    private static CompletableFuture<ObjectNode> done(ObjectNode answer) {
        return CompletableFuture.completedFuture(answer);
    }

    private static Duration ms(JsonNode number) {
        return Duration.ofMillis(number.asLong());
    }

    private static ObjectNode stats(RateLimitClient client) {
        Counters seen = client.counters();
        Map<String, Long> unavailable = new TreeMap<>();
        for (Kind kind : Kind.values())
            if (seen.unavailable(kind) > 0) unavailable.put(kind.text(), seen.unavailable(kind));
        ObjectNode counters = JSON.createObjectNode().put("checks", seen.checks()).put("allowed", seen.allowed())
                .put("denied", seen.denied()).put("remembered", seen.remembered()).put("refused", seen.refused());
        counters.set("unavailable", JSON.valueToTree(unavailable));
        return ok().put("pending", client.pending()).set("counters", counters);
    }

    /** No thread of this process does anything for this time: neither the client's, nor any other. */
    private static ObjectNode stopped(long ms) {
        say(JSON.createObjectNode().put("event", "blocking"));
        String script = "kill -STOP $0; sleep $1; kill -CONT $0";
        try {
            new ProcessBuilder("sh", "-c", script, Long.toString(ProcessHandle.current().pid()),
                    String.format(Locale.ROOT, "%.3f", ms / 1000.0)).start().waitFor();
        } catch (IOException | InterruptedException e) {
            return bug(e);
        }
        return ok();
    }

    /* ---- calls: the asynchronous form; `threads` uses the blocking one ---- */

    private CompletableFuture<ObjectNode> call(JsonNode c) {
        long begun = System.nanoTime();
        CompletableFuture<ObjectNode> answer = new CompletableFuture<>();
        CompletableFuture<?> future;
        Function<Object, ObjectNode> describe = result -> described(c, result);
        try {
            if (c.path("cancelled").asBoolean()) return done(failure(new CancellationException(), false).put("ms", 0));
            future = started(c);
            if (future == null) return done(JSON.createObjectNode().put("status", "unknown"));
        } catch (IllegalArgumentException e) {
            return done(failure(e, false).put("ms", 0));
        }
        running.put(c.path("id").asLong(), future);
        future.whenComplete((result, error) -> {
            double ms = (System.nanoTime() - begun) / 1e6;
            running.remove(c.path("id").asLong());
            try {
                answer.complete((error != null ? failure(error, true) : describe.apply(result)).put("ms", ms));
            } catch (RuntimeException e) {
                answer.complete(bug(e));
            }
        });
        return answer;
    }

    /** null: there is no such command. */
    private CompletableFuture<?> started(JsonNode c) {
        RateLimitClient client = clients.get(c.path("client").asText());
        CallOptions options = options(c);
        return switch (c.path("do").asText()) {
            case "check" -> client.checkAsync(check(c), options);
            case "check_all" -> client.checkAllAsync(items(c), options);
            case "check_many" -> client.checkManyAsync(items(c), options);
            case "peek" -> client.peekAsync(check(c).withCost(c.path("cost").asLong(0)), options);
            case "reset" -> client.resetAsync(check(c), options);
            case "refund" -> client.refundAsync(check(c).withCost(c.path("units").asLong()), options);
            case "acquire" -> client.acquireAsync(check(c), options);
            case "release" -> slots.get(c.get("slot").asText()).releaseAsync();
            case "reserve" -> client.reserveAsync(check(c).withCost(c.path("estimate").asLong()), options);
            case "settle" -> reservations.get(c.get("reservation").asText()).settleAsync(c.get("actual").asLong());
            case "cancel_reservation" -> reservations.get(c.get("reservation").asText()).cancelAsync();
            case "verify" -> CompletableFuture.runAsync(() -> {
                List<String> names = new ArrayList<>();
                c.path("policies").forEach(policy -> names.add(policy.asText()));
                client.verify(names, c.path("inline").asBoolean());
            });
            default -> null;
        };
    }

    private static CallOptions options(JsonNode c) {
        CallOptions options = CallOptions.DEFAULTS;
        if (c.hasNonNull("timeout_ms")) options = options.timeout(ms(c.get("timeout_ms")));
        if (c.hasNonNull("deadline_ms")) options = options.deadline(ms(c.get("deadline_ms")));
        if (c.hasNonNull("max_wait_ms")) options = options.maxWait(ms(c.get("max_wait_ms")));
        if (c.hasNonNull("ttl_ms")) options = options.ttl(ms(c.get("ttl_ms")));
        if (c.hasNonNull("at_most")) options = options.atMost(c.get("at_most").asLong());
        if (c.hasNonNull("request_id")) options = options.requestId(c.get("request_id").asText());
        return c.path("resend").asBoolean() ? options.resend() : options;
    }

    private static Check check(JsonNode c) {
        return check(c.get("policy"), c.get("key"), c.path("cost"));
    }

    private static Check check(JsonNode policy, JsonNode key, JsonNode cost) {
        Policy named = policy.isTextual() ? Policy.named(policy.asText())
                : Policy.inline(JSON.convertValue(policy, OBJECT));
        if (key.isTextual()) return Check.of(named, key.asText(), cost.asLong(1));
        return Check.of(named, Base64.getDecoder().decode(key.get("base64").asText()), cost.asLong(1));
    }

    private static List<Check> items(JsonNode c) {
        List<Check> checks = new ArrayList<>();
        c.get("items").forEach(item -> checks.add(check(item.get(0), item.get(1), item.path(2))));
        return checks;
    }

    private ObjectNode described(JsonNode c, Object result) {
        if (result instanceof Decision decision) {
            ObjectNode fields = fields(decision);
            String kind = c.path("do").asText();
            if (List.of("refund", "settle", "cancel_reservation").contains(kind))
                fields.put("refunded", decision.refunded()).put("charged", decision.charged())
                        .put("ended", decision.ended());
            return ok().set("decision", fields);
        }
        if (result instanceof Slot slot) {
            String name = c.path("as").asText("");
            slots.put(name, slot);
            slot.whenLost().thenRun(() -> say(JSON.createObjectNode().put("event", "lost").put("slot", name)));
            return ok().put("slot", slot.isHeld()).set("decision", fields(slot.decision()));
        }
        if (result instanceof Reservation reservation) {
            reservations.put(c.path("as").asText(""), reservation);
            return ok().put("reservation", reservation.isOpen()).set("decision", fields(reservation.decision()));
        }
        if (result instanceof List<?> decisions)
            return ok().set("decisions", JSON.valueToTree(decisions.stream().map(one -> fields((Decision) one)).toList()));
        if (c.path("do").asText().equals("release"))
            return ok().put("released", (Boolean) result).put("lost", slots.get(c.get("slot").asText()).isLost());
        return result instanceof Boolean removed ? ok().put("removed", removed) : ok();
    }

    private static ObjectNode fields(Decision d) {
        ObjectNode fields = JSON.createObjectNode().put("allowed", d.allowed()).put("limit", d.limit())
                .put("remaining", d.remaining()).put("retry_after_ms", d.retryAfterMs())
                .put("reset_after_ms", d.resetAfterMs()).put("delay_ms", d.delayMs()).put("granted", d.granted())
                .put("bound_by", d.boundBy()).put("source", d.source()).put("reason", d.reason())
                .put("policy_version", d.policyVersion()).put("shadow_denied", d.shadowDenied())
                .put("near", d.near()).put("of", d.of());
        fields.set("quota", JSON.valueToTree(d.quota() < 0 ? null : d.quota()));
        fields.set("window_ms", JSON.valueToTree(d.windowMs() < 0 ? null : d.windowMs()));
        fields.set("of_reset_ms", JSON.valueToTree(d.ofResetMs() < 0 ? null : d.ofResetMs()));
        if (!d.members().isEmpty())
            fields.set("members", JSON.valueToTree(d.members().stream().map(Driver::fields).toList()));
        return fields;
    }

    private static ObjectNode failure(Throwable error, boolean wasSent) {
        Throwable e = error instanceof CompletionException && error.getCause() != null ? error.getCause() : error;
        ObjectNode answer = JSON.createObjectNode();
        if (e instanceof UnavailableException gone) {
            boolean wasClosed = gone.kind() == Kind.LOST && !gone.maybeCharged();
            answer.put("status", wasClosed ? "cancelled" : gone.kind().text()).put("maybe_charged", gone.maybeCharged());
            if (!gone.code().isEmpty()) answer.put("code", gone.code());
        } else if (e instanceof RefusedException refused) {
            answer.put("status", "refused").put("maybe_charged", refused.maybeCharged()).put("code", refused.code());
            if (!refused.missing().isEmpty()) answer.set("missing", JSON.valueToTree(refused.missing()));
        } else if (e instanceof CancellationException) {
            return answer.put("status", "cancelled").put("maybe_charged", wasSent).put("message", "given up");
        } else if (e instanceof IllegalArgumentException) {
            answer.put("status", "argument").put("maybe_charged", false);
        } else return bug(e);
        return answer.put("message", e.getMessage());
    }

    private ObjectNode threads(JsonNode c) {
        Map<String, LongAdder> counts = new ConcurrentHashMap<>();
        LongAdder allowed = new LongAdder();
        List<Thread> threads = new ArrayList<>();
        for (int n = 0; n < c.get("n").asInt(); n++) {
            String thread = Integer.toString(n);
            threads.add(new Thread(() -> {
                for (int time = 0; time < c.path("times").asInt(1); time++)
                    for (JsonNode each : c.get("each")) {
                        ObjectNode answer = blocking(each.toString(), thread, Integer.toString(time));
                        counts.computeIfAbsent(answer.get("status").asText(), status -> new LongAdder()).increment();
                        if (answer.path("decision").path("allowed").asBoolean()) allowed.increment();
                    }
            }));
        }
        threads.forEach(Thread::start);
        for (Thread thread : threads) {
            try {
                thread.join();
            } catch (InterruptedException e) {
                return bug(e);
            }
        }
        Map<String, Long> sums = new TreeMap<>();
        counts.forEach((status, count) -> sums.put(status, count.sum()));
        return ok().put("allowed", allowed.sum()).set("counts", JSON.valueToTree(sums));
    }

    private ObjectNode blocking(String command, String thread, String time) {
        try {
            JsonNode c = JSON.readTree(command.replace("{thread}", thread).replace("{time}", time));
            if (!c.path("do").asText().equals("check")) return begin(c).join();
            return described(c, clients.get(c.path("client").asText()).check(check(c), options(c)));
        } catch (JsonProcessingException e) {
            return bug(e);
        } catch (RuntimeException e) {
            return failure(e, true);
        }
    }

    /* ---- helpers ---- */

    private static ObjectNode helper(JsonNode c) {
        try {
            return switch (c.path("do").asText()) {
                case "ip_key" -> ok().put("key", addressKey(c));
                case "user_key" -> ok().put("key", ClientAddress.userKey(text(c, "user"),
                        c.hasNonNull("user") ? null : addressKey(c)));
                case "join_key" -> ok().put("key", Key.join(JSON.convertValue(c.get("parts"), String[].class)));
                case "hashed_key" -> ok().put("key", Key.hashed(c.get("value").asText()));
                case "parse_limit" ->
                        ok().set("settings", JSON.valueToTree(Policy.parse(c.get("text").asText()).settings()));
                case "limit" -> {
                    Declaring.limit(JSON.convertValue(c.get("options"), OBJECT));
                    yield ok();
                }
                case "endpoint_key" -> endpointKey(c);
                case "service_name" -> ok().put("service", ServiceName.of(text(c, "option"),
                        JSON.convertValue(c.path("env"), ENVIRONMENT), text(c, "own"), "its name").name());
                default -> headers(c);
            };
        } catch (IllegalArgumentException e) {
            return failure(e, false);
        }
    }

    private static ObjectNode endpointKey(JsonNode c) {
        boolean isText = c.get("key").isTextual();
        Object key = isText ? c.get("key").asText() : Base64.getDecoder().decode(c.get("key").get("base64").asText());
        byte[] sent = Declaring.check(JSON.convertValue(c.get("limit"), OBJECT), text(c, "service"),
                c.get("endpoint").asText(), key).keyBytes();
        return isText ? ok().put("key", new String(sent, StandardCharsets.UTF_8))
                : ok().set("key", JSON.createObjectNode().put("base64", Base64.getEncoder().encodeToString(sent)));
    }

    private static String text(JsonNode c, String name) {
        return c.hasNonNull(name) ? c.get(name).asText() : null;
    }

    private static String addressKey(JsonNode c) {
        List<String> trusted = new ArrayList<>();
        JsonNode proxies = c.path("trusted_proxies");
        if (proxies.isNumber()) trusted.add(proxies.asText());
        else proxies.forEach(one -> trusted.add(one.asText()));
        String header = c.path("header").asText("X-Forwarded-For");
        return new ClientAddress(trusted, c.path("prefix").asInt(ClientAddress.DEFAULT_IPV6_PREFIX), header)
                .key(text(c, "peer"), wanted -> {
                    List<String> values = new ArrayList<>();
                    c.path("headers").forEach(pair -> {
                        if (pair.get(0).asText().equalsIgnoreCase(wanted)) values.add(pair.get(1).asText());
                    });
                    return values;
                });
    }

    private static ObjectNode headers(JsonNode c) {
        HeaderStyle style = new HeaderStyle(
                HeaderStyle.Fields.valueOf(c.path("mode").asText("ietf").toUpperCase(Locale.ROOT)),
                HeaderStyle.Reset.valueOf(c.path("reset").asText("delta").toUpperCase(Locale.ROOT)));
        HttpAnswer answer = c.path("unavailable").asBoolean() ? HttpAnswer.unavailable(text(c, "accept"))
                : HttpAnswer.of(decision(c.get("decision")), c.path("slot").asBoolean(), style, text(c, "accept"),
                        c.path("now_ms").asLong());
        List<List<String>> pairs = new ArrayList<>();
        answer.headers().forEach((name, value) -> pairs.add(List.of(name, value)));
        ObjectNode line = ok();
        line.set("http_status", JSON.valueToTree(answer.status() == 0 ? null : answer.status()));
        line.put("body", answer.status() == 0 ? null : answer.body());
        return line.set("headers", JSON.valueToTree(pairs));
    }

    private static Decision decision(JsonNode fields) {
        List<Decision> members = new ArrayList<>();
        fields.path("members").forEach(member -> members.add(decision(member)));
        return Decision.of(wire(JSON.convertValue(fields, OBJECT)), 1).with(members);
    }

    /** JSON's integers as the protocol has them. */
    private static Object wire(Object value) {
        if (value instanceof Integer number) return number.longValue();
        if (value instanceof Map<?, ?> map) {
            Map<Object, Object> result = new TreeMap<>();
            map.forEach((name, one) -> result.put(name, wire(one)));
            return result;
        }
        return value instanceof List<?> list ? list.stream().map(Driver::wire).toList() : value;
    }
}
