package io.ratelimitd.spring;

import io.ratelimitd.RateLimitClient;
import io.ratelimitd.UnavailableException;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.stream.Collectors;
import org.apache.commons.logging.Log;
import org.apache.commons.logging.LogFactory;

/** What the daemon's configuration has, compared with what the application declares. */
final class Policies {
    private static final Log LOG = LogFactory.getLog(Policies.class);

    private final RateLimitClient client;
    private final Map<String, List<Limit>> declared = new ConcurrentHashMap<>(); /* by endpoint */
    private volatile boolean haveChargeWhen;
    private volatile Set<String> ofEndpoint; /* policies that count by address, class and method; null: not known yet */

    Policies(RateLimitClient client) {
        this.client = client;
    }

    void declare(List<Limit> limits) {
        for (Limit limit : limits) {
            declared.computeIfAbsent(limit.endpoint(), endpoint -> new CopyOnWriteArrayList<>()).add(limit);
            if (limit.chargeWhen() != null) haveChargeWhen = true;
        }
    }

    /** Is any limit charged by the status of the answer? */
    boolean haveChargeWhen() {
        return haveChargeWhen;
    }

    /** Asks the daemon when it is first needed: at the start, or after it if the daemon was away then. */
    boolean isOfEndpoint(String policy) {
        if (ofEndpoint == null) ofEndpoint = ofEndpoint(client.policies());
        return ofEndpoint.contains(policy);
    }

    private static Set<String> ofEndpoint(Collection<Map<String, Object>> policies) {
        return policies.stream().filter(policy -> preset(policy).startsWith("endpoint-"))
                .map(policy -> (String) policy.get("name")).collect(Collectors.toSet());
    }

    /** The preset of a policy that shares another limiter's keys; empty if it has none. */
    private static String preset(Map<String, Object> policy) {
        if (policy.get("limits") instanceof List<?> limits)
            for (Object limit : limits)
                if (limit instanceof Map<?, ?> settings && settings.get("compat") instanceof String name) return name;
        return "";
    }

    /**
     * At the start: is every policy there, are settings allowed that the application has of its own, and can the limits
     * of each endpoint be decided together? A daemon that is away stops nothing.
     *
     * @throws RuntimeException with what is wrong, and where
     */
    void verify() {
        List<Limit> all = new ArrayList<>();
        declared.values().forEach(all::addAll);
        if (all.isEmpty()) return;

        try {
            client.verify(all.stream().map(Limit::policy).filter(policy -> !policy.isInline())
                    .map(policy -> policy.name()).toList(), all.stream().anyMatch(limit -> limit.policy().isInline()));
            List<Map<String, Object>> known = client.policies();
            ofEndpoint = ofEndpoint(known);
            Set<Object> shared = known.stream().filter(policy -> !preset(policy).isEmpty())
                    .map(policy -> policy.get("name")).collect(Collectors.toSet());
            declared.forEach((endpoint, limits) -> {
                for (Limit limit : limits)
                    if (limits.size() > 1 && shared.contains(limit.policy().name()))
                        throw new IllegalStateException(limit.where() + ": the policy " + limit.policy().name()
                                + " shares another limiter's keys (compat), so it cannot stand next to another limit");
            });
        } catch (UnavailableException e) {
            LOG.warn("the limits are not compared with the configuration of ratelimitd: " + e.getMessage());
        }
    }
}
