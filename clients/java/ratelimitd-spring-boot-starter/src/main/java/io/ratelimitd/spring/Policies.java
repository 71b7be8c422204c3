package io.ratelimitd.spring;

import io.ratelimitd.RateLimitClient;
import io.ratelimitd.UnavailableException;
import io.ratelimitd.http.ServiceName;
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
    private final ServiceName service;
    private final Map<String, List<Limit>> declared = new ConcurrentHashMap<>(); /* by endpoint */
    private volatile Set<String> ofEndpoint; /* policies that count by address, class and method; null: not known yet */

    /** @param service in front of the keys of limits that are written in the program */
    Policies(RateLimitClient client, ServiceName service) {
        this.client = client;
        this.service = service;
    }

    ServiceName service() {
        return service;
    }

    void declare(List<Limit> limits) {
        for (Limit limit : limits)
            declared.computeIfAbsent(limit.endpoint(), endpoint -> new CopyOnWriteArrayList<>()).add(limit);
    }

    /** False: {@link #isOfEndpoint} needs what the daemon has first. It is read at the start, if the daemon is there. */
    boolean areKnown() {
        return ofEndpoint != null;
    }

    boolean isOfEndpoint(String policy) {
        return ofEndpoint.contains(policy);
    }

    void learn(Collection<Map<String, Object>> policies) {
        ofEndpoint = policies.stream().filter(policy -> preset(policy).startsWith("endpoint-"))
                .map(policy -> (String) policy.get("name")).collect(Collectors.toSet());
    }

    /** The preset of a policy that shares another limiter's keys; empty if it has none. */
    private static String preset(Map<String, Object> policy) {
        if (policy.get("limits") instanceof List<?> limits)
            for (Object limit : limits)
                if (limit instanceof Map<?, ?> settings && settings.get("compat") instanceof String name) return name;
        return "";
    }

    private List<Limit> all() {
        List<Limit> all = new ArrayList<>();
        declared.values().forEach(all::addAll);
        return all;
    }

    /** Says once, at the start, whose counters the limits have that are written in the program. */
    void reportService() {
        if (all().stream().noneMatch(Limit::isInline)) return;
        LOG.info(service.name().isEmpty() ? "limits that are written in the program are counted without a service in front"
                + " of their keys: set spring.application.name or ratelimitd.service"
                : "limits that are written in the program are counted for the service " + service.name() + ", as "
                + service.from() + " has it");
    }

    /**
     * At the start: is every policy there, are settings allowed that the application has of its own, and can the limits
     * of each endpoint be decided together? A daemon that is away stops nothing.
     *
     * @throws RuntimeException with what is wrong, and where
     */
    void verify() {
        List<Limit> all = all();
        if (all.isEmpty()) return;

        try {
            client.verify(all.stream().map(Limit::policy).filter(policy -> policy != null && !policy.isInline())
                    .map(policy -> policy.name()).toList(), all.stream().anyMatch(Limit::isInline));
            List<Map<String, Object>> known = client.policies();
            learn(known);
            Set<Object> shared = known.stream().filter(policy -> !preset(policy).isEmpty())
                    .map(policy -> policy.get("name")).collect(Collectors.toSet());
            declared.forEach((endpoint, limits) -> {
                for (Limit limit : limits)
                    if (limits.size() > 1 && shared.contains(limit.name()))
                        throw new InvalidLimitException(limit.where(), "the policy " + limit.name()
                                + " shares another limiter's keys (compat), so it cannot stand next to another limit");
            });
        } catch (UnavailableException e) {
            LOG.warn("the limits are not compared with the configuration of ratelimitd: " + e.getMessage());
        }
    }
}
