package io.ratelimitd.spring;

import io.micrometer.core.instrument.Counter;
import io.micrometer.core.instrument.FunctionCounter;
import io.micrometer.core.instrument.MeterRegistry;
import io.micrometer.core.instrument.binder.MeterBinder;
import io.ratelimitd.Check;
import io.ratelimitd.Counters;
import io.ratelimitd.Decision;
import io.ratelimitd.RateLimitClient;
import io.ratelimitd.UnavailableException.Kind;
import java.util.List;
import java.util.function.ToDoubleFunction;

/**
 * `ratelimitd.checks` by policy and result, where a check of several policies counts for each of them;
 * `ratelimitd.remembered`, `ratelimitd.refused`, and `ratelimitd.unavailable` by kind.
 */
final class RateLimitMetrics implements MeterBinder {
    private final RateLimitClient client;

    RateLimitMetrics(RateLimitClient client) {
        this.client = client;
    }

    @Override
    public void bindTo(MeterRegistry registry) {
        client.onDecision((checks, decision) -> count(registry, checks, decision));
        register(FunctionCounter.builder("ratelimitd.remembered", client.counters(), Counters::remembered), registry);
        register(FunctionCounter.builder("ratelimitd.refused", client.counters(), Counters::refused), registry);
        for (Kind kind : Kind.values()) {
            ToDoubleFunction<Counters> count = all -> all.unavailable(kind);
            register(FunctionCounter.builder("ratelimitd.unavailable", client.counters(), count).tag("kind", kind.text()),
                    registry);
        }
    }

    private static void register(FunctionCounter.Builder<Counters> counter, MeterRegistry registry) {
        counter.register(registry);
    }

    private static void count(MeterRegistry registry, List<Check> checks, Decision decision) {
        for (int i = 0; i < checks.size(); i++) {
            Decision own = decision.members().isEmpty() ? decision : decision.members().get(i);
            Counter.builder("ratelimitd.checks").tag("policy", checks.get(i).policy().name())
                    .tag("result", own.allowed() ? "allowed" : "denied").register(registry).increment();
        }
    }
}
