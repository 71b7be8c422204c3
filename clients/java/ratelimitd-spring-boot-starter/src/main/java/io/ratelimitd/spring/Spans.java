package io.ratelimitd.spring;

import io.opentelemetry.api.trace.Span;
import io.ratelimitd.Decision;
import java.util.function.Consumer;
import org.springframework.util.ClassUtils;

/** Writes decisions into the spans of requests, if the application has OpenTelemetry. */
final class Spans {
    private static final boolean ARE_THERE = ClassUtils.isPresent("io.opentelemetry.api.trace.Span", Spans.class.getClassLoader());

    private Spans() {
    }

    /** For the span of the present thread. It takes null, which is no decision. */
    static Consumer<Decision> current() {
        return ARE_THERE ? OfOpenTelemetry.current() : decision -> { };
    }

    private static final class OfOpenTelemetry {
        static Consumer<Decision> current() {
            Span span = Span.current();
            return decision -> {
                if (decision == null || !span.isRecording()) return;
                String of = decision.boundBy() != null ? decision.boundBy() : decision.of();
                span.setAttribute("ratelimit.policy", of == null ? "" : of.split("/", 2)[0]);
                span.setAttribute("ratelimit.result", decision.allowed() ? "allowed" : "denied");
                span.setAttribute("ratelimit.source", decision.source());
            };
        }
    }
}
