package io.ratelimitd.spring;

import io.ratelimitd.RefusedException;
import java.lang.reflect.RecordComponent;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.stream.Collectors;
import org.springframework.boot.context.properties.bind.UnboundConfigurationPropertiesException;
import org.springframework.boot.context.properties.source.ConfigurationProperty;
import org.springframework.boot.diagnostics.FailureAnalysis;
import org.springframework.boot.diagnostics.FailureAnalyzer;
import org.springframework.core.annotation.Order;

/** Why an application does not start, in place of a stack trace: a limit that cannot be meant so. */
@Order(0)
final class RateLimitFailureAnalyzer implements FailureAnalyzer {
    private static final String PREFIX = "ratelimitd.";

    @Override
    public FailureAnalysis analyze(Throwable failure) {
        for (Throwable cause = failure; cause != null; cause = cause.getCause()) {
            if (cause instanceof InvalidLimitException)
                return new FailureAnalysis(cause.getMessage(), "Correct this limit.", cause);
            if (cause instanceof RefusedException refused)
                return new FailureAnalysis(refused.getMessage(), action(refused), refused);
            if (cause instanceof UnboundConfigurationPropertiesException unbound) return unknown(unbound);
        }
        return null;
    }

    private static String action(RefusedException refused) {
        return switch (refused.code()) {
            case "UNKNOWN_POLICY" -> "Correct the name in the application, or add the policy to the configuration of"
                    + " ratelimitd and reload it.";
            case "NOT_PERMITTED" -> "Add `inline: {allow: true}` to the configuration of ratelimitd and reload it, or give"
                    + " the limits policies of that configuration.";
            default -> "Correct the limit or the configuration of ratelimitd: its log has the same message.";
        };
    }

    /** null: they are not ours. */
    private static FailureAnalysis unknown(UnboundConfigurationPropertiesException failure) {
        List<String> names = failure.getUnboundProperties().stream().map(ConfigurationProperty::getName)
                .map(Object::toString).filter(name -> name.startsWith(PREFIX)).toList();
        if (names.isEmpty()) return null;
        boolean isOfFilter = names.stream().anyMatch(name -> name.startsWith(PREFIX + "filters"));
        return new FailureAnalysis("There is no setting " + String.join(", ", names) + ".", "Correct the name. "
                + (isOfFilter ? "A filter has " + options(RateLimitProperties.Filter.class)
                : "There are " + options(RateLimitProperties.class)) + ".", failure);
    }

    private static String options(Class<? extends Record> type) {
        return Arrays.stream(type.getRecordComponents()).map(RecordComponent::getName)
                .map(name -> name.replaceAll("([A-Z])", "-$1").toLowerCase(Locale.ROOT))
                .collect(Collectors.joining(", "));
    }
}
