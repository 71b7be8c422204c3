package io.ratelimitd.spring;

import io.ratelimitd.Decision;
import io.ratelimitd.http.ClientAddress;
import io.ratelimitd.http.HeaderStyle;
import io.ratelimitd.http.HttpAnswer;
import jakarta.servlet.AsyncEvent;
import jakarta.servlet.AsyncListener;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.commons.logging.Log;
import org.apache.commons.logging.LogFactory;
import org.springframework.web.util.WebUtils;

/** The guard of requests: the verdict becomes header fields, and where it is no, the answer. */
final class WebGuard {
    private static final Log LOG = LogFactory.getLog(WebGuard.class);

    private final Guard guard;
    private final ClientAddress addresses;
    private final HeaderStyle style;
    private final RateLimitResponder responder;
    private final AtomicBoolean warned = new AtomicBoolean();

    WebGuard(Guard guard, ClientAddress addresses, HeaderStyle style, RateLimitResponder responder) {
        this.guard = guard;
        this.addresses = addresses;
        this.style = style;
        this.responder = responder;
    }

    /** null: the request was answered, and goes no further. Else the caller ends the passage. */
    Passage enter(List<Limit> limits, String endpoint, HttpServletRequest request, HttpServletResponse response)
            throws IOException {
        WebContext context = new WebContext(endpoint, request, addresses);
        if (limits.isEmpty() || isPreflight(request)) return new Passage(context);
        warnOfProxies(request);

        Passage passage = guard.enter(limits, context);
        String accept = request.getHeader("Accept");
        if (passage.failure() != null) {
            respond(request, response, HttpAnswer.unavailable(accept));
            return null;
        }
        if (passage.denial() != null) {
            respond(request, response, answer(passage.denial(), accept));
            return null;
        }
        for (Passage.Decided decided : passage.decisions()) setHeaders(response, answer(decided, accept));
        if (passage.waitsForStatus()) {
            BodyWatch watch = WebUtils.getNativeResponse(response, BodyWatch.class);
            if (watch != null) watch.beforeBody(passage::settle); /* without it, the end of the call settles */
        }
        return passage;
    }

    /** The browser asks whether it may send the request itself. */
    private static boolean isPreflight(HttpServletRequest request) {
        return request.getMethod().equals("OPTIONS") && request.getHeader("Access-Control-Request-Method") != null;
    }

    private void warnOfProxies(HttpServletRequest request) {
        if (!addresses.trustsNobody() || request.getHeader(addresses.header()) == null) return;
        if (warned.compareAndSet(false, true))
            LOG.warn("a request from " + request.getRemoteAddr() + " has " + addresses.header() + ", which nothing here"
                    + " believes. If that is your proxy, all its clients count as one: set ratelimitd.trusted-proxies");
    }

    /** RateLimit has the members whose limits want it; the older fields report the whole, if one of them wants those. */
    private HttpAnswer answer(Passage.Decided decided, String accept) {
        List<Decision> members = decided.decision().members();
        List<Decision> shown = new ArrayList<>();
        boolean isIetf = false;
        boolean isLegacy = false;
        for (int i = 0; i < decided.limits().size(); i++) {
            HeaderStyle own = new HeaderStyle(decided.limits().get(i).headers().or(style.fields()), style.reset());
            if (own.hasIetf() && !members.isEmpty()) shown.add(members.get(i));
            isIetf |= own.hasIetf();
            isLegacy |= own.hasLegacy();
        }
        HeaderStyle all = new HeaderStyle(HeaderStyle.Fields.of(isIetf, isLegacy), style.reset());
        return HttpAnswer.of(decided.decision().with(shown), decided.isOfSlot(), all, accept, System.currentTimeMillis());
    }

    private void respond(HttpServletRequest request, HttpServletResponse response, HttpAnswer answer)
            throws IOException {
        setHeaders(response, answer);
        responder.respond(request, response, answer);
    }

    private static void setHeaders(HttpServletResponse response, HttpAnswer answer) {
        for (Map.Entry<String, String> field : answer.headers().entrySet()) {
            String name = field.getKey();
            if (name.equals("Content-Type")) continue;
            boolean isList = name.startsWith("RateLimit"); /* another limiter may have set its own */
            String before = isList ? response.getHeader(name) : null;
            response.setHeader(name, before == null ? field.getValue() : before + ", " + field.getValue());
        }
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
