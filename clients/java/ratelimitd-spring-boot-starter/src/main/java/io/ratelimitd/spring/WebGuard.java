package io.ratelimitd.spring;

import io.ratelimitd.DeniedException;
import io.ratelimitd.http.HttpAnswer;
import jakarta.servlet.AsyncEvent;
import jakarta.servlet.AsyncListener;
import jakarta.servlet.DispatcherType;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.List;
import org.springframework.web.util.WebUtils;

/** The guard of servlet requests: the verdict becomes header fields, and where it is no, the answer. */
final class WebGuard {
    private static final String PASSAGE = WebGuard.class.getName() + ".passage"; /* the last one of the request */

    private final Guard guard;
    private final Answers answers;
    private final RateLimitResponder responder;

    WebGuard(Guard guard, Answers answers, RateLimitResponder responder) {
        this.guard = guard;
        this.answers = answers;
        this.responder = responder;
    }

    /**
     * null: the request was answered, and goes no further. Else the caller ends the passage.
     *
     * @param handler `class-method`; empty: a filter
     */
    Passage enter(List<Limit> limits, String endpoint, String handler, HttpServletRequest request,
                  HttpServletResponse response) throws IOException {
        WebContext context = new WebContext(endpoint, handler, request, answers.addresses());
        if (limits.isEmpty()) return new Passage(context, null);
        answers.warnOfProxies(context);

        Passage passage = guard.enter(limits, context, (Passage) request.getAttribute(PASSAGE));
        request.setAttribute(PASSAGE, passage);
        request.setAttribute(RateLimit.DECISION, passage.decision());
        Spans.current().accept(passage.decision());
        HttpAnswer refusal = answers.refusal(passage, request.getHeader("Accept"));
        if (refusal != null) {
            if (request.getDispatcherType() == DispatcherType.INCLUDE) throw refused(passage); /* the whole has the status */
            LimitedResponse.report(response, refusal.headers(), passage.reported());
            responder.respond(request, response, refusal);
            return null;
        }
        LimitedResponse.report(response, answers.fields(passage), passage.reported());
        LimitedResponse watch = WebUtils.getNativeResponse(response, LimitedResponse.class);
        if (watch != null) watch.beforeBody(status -> passage.settle(status).join()); /* without it, the end of the call settles */
        return passage;
    }

    private static RuntimeException refused(Passage passage) {
        return passage.failure() != null ? passage.failure()
                : new DeniedException(passage.denial().policy(), passage.denial().decision());
    }

    void respond(HttpServletRequest request, HttpServletResponse response, HttpAnswer answer) throws IOException {
        Passage passage = (Passage) request.getAttribute(PASSAGE);
        LimitedResponse.report(response, answer.headers(), passage == null ? new HashMap<>() : passage.reported());
        responder.respond(request, response, answer);
    }

    static void respondByDefault(HttpServletRequest request, HttpServletResponse response, HttpAnswer answer)
            throws IOException {
        byte[] body = answer.body().getBytes(StandardCharsets.UTF_8);
        response.setStatus(answer.status());
        response.setContentType(answer.headers().get("Content-Type"));
        response.setContentLength(body.length);
        response.getOutputStream().write(body);
    }

    /** Ends the passage when the asynchronous request has ended, in whatever way. */
    static void endWithAsync(HttpServletRequest request, HttpServletResponse response, Passage passage) {
        request.getAsyncContext().addListener(new AsyncListener() {
            @Override
            public void onComplete(AsyncEvent event) {
                passage.end(response.getStatus());
            }

            @Override
            public void onTimeout(AsyncEvent event) {
                /* onComplete follows */
            }

            @Override
            public void onError(AsyncEvent event) {
                /* onComplete follows */
            }

            @Override
            public void onStartAsync(AsyncEvent event) {
                event.getAsyncContext().addListener(this); /* a new cycle forgets its listeners */
            }
        });
    }
}
