package io.ratelimitd.spring;

import io.ratelimitd.Decision;
import io.ratelimitd.DeniedException;
import io.ratelimitd.UnavailableException;
import io.ratelimitd.http.ClientAddress;
import io.ratelimitd.http.HeaderStyle;
import io.ratelimitd.http.HttpAnswer;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.stream.Collectors;
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
        if (passage.failure() == null)
            return passage.denial() == null ? null
                    : answer(passage, passage.denial().decision(), passage.denial().isOfSlot(), accept);
        HttpAnswer unavailable = HttpAnswer.unavailable(accept);
        Map<String, String> headers = new LinkedHashMap<>(fields(passage));
        headers.putAll(unavailable.headers());
        return new HttpAnswer(unavailable.status(), headers, unavailable.body());
    }

    /** What a request gets whose handler has thrown this. null: it is not about limits. */
    HttpAnswer refusal(Throwable error, String accept) {
        if (error instanceof DeniedException denied)
            return HttpAnswer.of(denied.decision(), false, style, accept, System.currentTimeMillis());
        return error instanceof UnavailableException ? HttpAnswer.unavailable(accept) : null;
    }

    /** Of a call that goes on: those of all its limits, at earlier places, too. */
    Map<String, String> fields(Passage passage) {
        Decision whole = passage.decision();
        if (whole == null) return Map.of();
        return answer(passage, whole, false, null).headers().entrySet().stream()
                .filter(field -> isList(field.getKey()) || field.getKey().startsWith("X-"))
                .collect(Collectors.toMap(Map.Entry::getKey, Map.Entry::getValue, (one, other) -> one, LinkedHashMap::new));
    }

    /** A list field with this value in the place of what was reported before; others may have added to it. */
    static String joined(String name, String there, String value, Map<String, String> reported) {
        if (!isList(name)) return value;
        String before = reported.put(name, value);
        if (there == null) return value;
        return before != null && there.contains(before) ? there.replace(before, value) : there + ", " + value;
    }

    /** Another limiter, or the application, may have fields of this name: ours are added. Others are replaced. */
    static boolean isList(String name) {
        return name.equalsIgnoreCase("RateLimit") || name.equalsIgnoreCase("RateLimit-Policy");
    }

    /** RateLimit has the members whose limits want it, each policy and key once; the older fields report the whole, if a limit
     * wants those. */
    private HttpAnswer answer(Passage passage, Decision whole, boolean isOfSlot, String accept) {
        Deque<Passage> places = new ArrayDeque<>();
        for (Passage place = passage; place != null; place = place.outer()) places.addFirst(place);
        List<Asked> shown = new ArrayList<>();
        boolean isLegacy = false;
        for (Passage place : places) {
            for (Asked one : place.asked()) {
                if (one.decision == null) continue;
                HeaderStyle own = new HeaderStyle(one.limit.headers().or(style.fields()), style.reset());
                isLegacy |= own.hasLegacy();
                if (own.hasIetf()) put(shown, one);
            }
        }
        HeaderStyle all = new HeaderStyle(HeaderStyle.Fields.of(!shown.isEmpty(), isLegacy), style.reset());
        return HttpAnswer.of(whole.with(shown.stream().map(one -> one.decision).toList()), isOfSlot, all, accept,
                System.currentTimeMillis());
    }

    private static void put(List<Asked> shown, Asked one) {
        for (int i = 0; i < shown.size(); i++)
            if (shown.get(i).equalTo(one)) {
                shown.set(i, one);
                return;
            }
        shown.add(one);
    }
}
