package io.ratelimitd.spring;

import io.ratelimitd.Decision;
import io.ratelimitd.DeniedException;
import io.ratelimitd.UnavailableException;
import io.ratelimitd.http.ClientAddress;
import io.ratelimitd.http.HeaderStyle;
import io.ratelimitd.http.HttpAnswer;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.commons.logging.Log;
import org.apache.commons.logging.LogFactory;

/** Verdicts as header fields and answers, the same in servlet and reactive applications. */
final class Answers {
    private static final Log LOG = LogFactory.getLog(Answers.class);

    private final ClientAddress addresses;
    private final HeaderStyle style;
    private final AtomicBoolean warned = new AtomicBoolean();

    Answers(RateLimitProperties properties) {
        addresses = new ClientAddress(properties.trustedProxies(), properties.ipv6Prefix(), properties.forwardedHeader());
        style = properties.style();
    }

    ClientAddress addresses() {
        return addresses;
    }

    void warnOfProxies(RequestContext request) {
        if (!addresses.trustsNoProxy() || request.header(addresses.header()) == null) return;
        if (warned.compareAndSet(false, true))
            LOG.warn("a request from " + request.peer() + " has " + addresses.header() + ", which nothing here believes."
                    + " If that is your proxy, all its clients count as one: set ratelimitd.trusted-proxies");
    }

    /** What a call gets that does not go on. null: it does. */
    HttpAnswer refusal(Passage passage, String accept) {
        if (passage.failure() != null) return HttpAnswer.unavailable(accept);
        return passage.denial() == null ? null : answer(passage.denial(), accept);
    }

    /** What a request gets whose handler has thrown this. null: it is not about limits. */
    HttpAnswer refusal(Throwable error, String accept) {
        if (error instanceof DeniedException denied)
            return HttpAnswer.of(denied.decision(), false, style, accept, System.currentTimeMillis());
        return error instanceof UnavailableException ? HttpAnswer.unavailable(accept) : null;
    }

    /** Of a call that goes on: those of all its limits. */
    Map<String, String> fields(Passage passage) {
        Map<String, String> all = new LinkedHashMap<>();
        for (Passage.Decided decided : passage.decisions())
            answer(decided, null).headers().forEach((name, value) ->
                    all.merge(name, value, (before, more) -> isList(name) ? before + ", " + more : more));
        return all;
    }

    /** Another limiter, or the application, may have fields of this name: ours are added. Others are replaced. */
    static boolean isList(String name) {
        return name.equalsIgnoreCase("RateLimit") || name.equalsIgnoreCase("RateLimit-Policy");
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
}
