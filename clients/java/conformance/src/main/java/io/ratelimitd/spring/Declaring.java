package io.ratelimitd.spring;

import io.ratelimitd.Check;
import io.ratelimitd.http.ServiceName;
import java.lang.reflect.RecordComponent;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import java.util.stream.Collectors;
import org.springframework.boot.context.properties.bind.BindHandler;
import org.springframework.boot.context.properties.bind.Bindable;
import org.springframework.boot.context.properties.bind.Binder;
import org.springframework.boot.context.properties.bind.handler.NoUnboundElementsBindHandler;
import org.springframework.boot.context.properties.source.MapConfigurationPropertySource;
import org.springframework.boot.diagnostics.FailureAnalysis;
import org.springframework.boot.diagnostics.FailureAnalyzer;
import org.springframework.core.io.support.SpringFactoriesLoader;

/** Limits as the settings of a Spring application declare them: what is refused here stops its start. */
public final class Declaring {
    private static final Map<String, String> FUNCTIONS = Map.of("policy", "policy-expression", "limit", "limit-expression",
            "window", "window-expression");
    private static final Map<String, String> EXPRESSIONS = Map.of("policy", "param('policy')", "limit", "1 + 1", "window",
            "'1' + 's'", "key", "ip", "cost", "1 + 1", "skip", "ip == 'x'", "charge_when", "#status == 401");
    private static final Set<String> OPTIONS = Arrays.stream(RateLimitProperties.Filter.class.getRecordComponents())
            .map(RecordComponent::getName).map(name -> name.replaceAll("([A-Z])", "_$1").toLowerCase(Locale.ROOT))
            .collect(Collectors.toSet());

    private Declaring() {
    }

    /**
     * Makes a limit.
     *
     * @param options by their names in docs/clients.md; a map is a function, which is an expression here
     * @throws IllegalArgumentException with what the start of the application would report
     */
    public static void limit(Map<String, Object> options) {
        made(options, "/");
    }

    /** What is sent. */
    public static Check check(Map<String, Object> options, String service, String endpoint, Object key) {
        Limit limit = made(options, endpoint);
        return limit.check(limit.policy(), key, 1, new ServiceName(service == null ? "" : service, ""));
    }

    private static Limit made(Map<String, Object> options, String endpoint) {
        Map<String, Object> properties = new LinkedHashMap<>(Map.of("ratelimitd.filters[0].pattern", "/"));
        options.forEach((name, value) -> properties.put("ratelimitd.filters[0]." + property(name, value, options),
                value instanceof Map ? EXPRESSIONS.getOrDefault(name, "ip == 'x'") : value));
        try {
            RateLimitProperties bound = new Binder(new MapConfigurationPropertySource(properties)).bind("ratelimitd",
                    Bindable.of(RateLimitProperties.class),
                    new NoUnboundElementsBindHandler(BindHandler.DEFAULT, source -> true)).get();
            return Limit.of(bound.filters().get(0).declared(), "ratelimitd.filters", endpoint, WebContext.EXPRESSIONS);
        } catch (RuntimeException e) {
            throw new IllegalArgumentException(report(e), e);
        }
    }

    private static String property(String name, Object value, Map<String, Object> options) {
        if (value instanceof Map && FUNCTIONS.containsKey(name)) return FUNCTIONS.get(name);
        boolean isSetting = !OPTIONS.contains(name) && options.containsKey("algorithm");
        return isSetting ? "settings." + name : name.replace('_', '-');
    }

    /** As Spring Boot prints it, with the option names of docs/clients.md. */
    private static String report(RuntimeException failure) {
        List<FailureAnalyzer> analyzers = SpringFactoriesLoader.forDefaultResourceLocation().load(FailureAnalyzer.class,
                (type, name, error) -> { /* it needs an application */ });
        return analyzers.stream().map(analyzer -> analysis(analyzer, failure)).filter(Objects::nonNull).findFirst()
                .map(found -> found.getDescription() + " " + found.getAction()).orElse(failure.toString())
                .replace('\n', ' ').replace("chargeWhen", "charge_when").replace('-', '_').toLowerCase(Locale.ROOT);
    }

    private static FailureAnalysis analysis(FailureAnalyzer analyzer, RuntimeException failure) {
        try {
            return analyzer.analyze(failure);
        } catch (RuntimeException e) { /* it needs an application */
            return null;
        }
    }
}
