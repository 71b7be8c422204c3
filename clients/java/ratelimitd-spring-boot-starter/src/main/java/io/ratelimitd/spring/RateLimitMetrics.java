package io.ratelimitd.spring;

import io.micrometer.core.instrument.FunctionCounter;
import io.micrometer.core.instrument.MeterRegistry;
import io.micrometer.core.instrument.binder.MeterBinder;
import io.ratelimitd.Counters;
import io.ratelimitd.RateLimitClient;
import io.ratelimitd.UnavailableException.Kind;
import java.util.function.ToDoubleFunction;

/** `ratelimitd.checks` by result, and `ratelimitd.unavailable` by kind. */
final class RateLimitMetrics implements MeterBinder {
    private final Counters counters;

    RateLimitMetrics(RateLimitClient client) {
        counters = client.counters();
    }

    @Override
    public void bindTo(MeterRegistry registry) {
        register(registry, "ratelimitd.checks", "result", "allowed", Counters::allowed);
        register(registry, "ratelimitd.checks", "result", "denied", Counters::denied);
        register(registry, "ratelimitd.checks", "result", "refused", Counters::refused);
        for (Kind kind : Kind.values())
            register(registry, "ratelimitd.unavailable", "kind", kind.text(), all -> all.unavailable(kind));
    }

    private void register(MeterRegistry registry, String name, String tag, String value,
                          ToDoubleFunction<Counters> count) {
        FunctionCounter.builder(name, counters, count).tag(tag, value).register(registry);
    }
}
