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

    private record Owner(String where, boolean isWritten) {
    }

    private final RateLimitClient client;
    private final ServiceName service;
    private final Map<String, List<Limit>> declared = new ConcurrentHashMap<>(); /* by endpoint */
    private final Map<String, Owner> owners = new ConcurrentHashMap<>(); /* of the names that limits count by */
    private final Map<String, Long> versions = new ConcurrentHashMap<>(); /* of policies, when they were last read */
    private volatile Set<String> counting = Set.of(); /* policies that count denials */
    private volatile Set<String> ofEndpoint; /* policies that count by address, class and method; null: not known yet */

    /** @param service in front of the keys of limits that are written in the program */
    Policies(RateLimitClient client, ServiceName service) {
        this.client = client;
        this.service = service;
    }

    ServiceName service() {
        return service;
    }

    /**
     * @throws InvalidLimitException another endpoint has the same name, so their limits would share counters
     * @param where what the endpoint is, for the message
     */
    void declare(List<Limit> limits, String where) {
        for (Limit limit : limits) {
            Owner own = new Owner(where, !limit.declared().endpoint().isEmpty());
            Owner other = limit.isInline() ? owners.putIfAbsent(limit.endpoint(), own) : null;
            if (other != null && !other.where().equals(where) && !(own.isWritten() && other.isWritten()))
                throw new InvalidLimitException(limit.where(), "the endpoints " + other.where() + " and " + where
                        + " have the same name, `" + limit.endpoint() + "`, so their limits would share counters: write"
                        + " `endpoint` at each, or the same one at both");
            declared.computeIfAbsent(limit.endpoint(), endpoint -> new CopyOnWriteArrayList<>()).add(limit);
        }
    }

    /** False: {@link #isOfEndpoint} needs what the daemon has first. It is read at the start, if the daemon is there. */
    boolean areKnown() {
        return ofEndpoint != null;
    }

    boolean isOfEndpoint(String policy) {
        return ofEndpoint.contains(policy);
    }

    boolean countsDenied(String policy) {
        return counting.contains(policy);
    }

    /** Is what is known of the policy's limits that of this version? */
    boolean isCurrent(String policy, long version) {
        return Long.valueOf(version).equals(versions.get(policy));
    }

    void seen(String policy, long version) {
        versions.put(policy, version);
    }

    void learn(Collection<Map<String, Object>> policies) {
        counting = policies.stream().filter(Policies::countsDenied).map(policy -> (String) policy.get("name"))
                .collect(Collectors.toSet());
        versions.clear();
        ofEndpoint = policies.stream().filter(policy -> preset(policy).startsWith("endpoint-"))
                .map(policy -> (String) policy.get("name")).collect(Collectors.toSet());
    }

    private static boolean countsDenied(Map<String, Object> policy) {
        return policy.get("limits") instanceof List<?> limits && limits.stream()
                .anyMatch(limit -> limit instanceof Map<?, ?> settings && Boolean.TRUE.equals(settings.get("count_denied")));
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
        String known = service.name().isEmpty() ? "without a service in front of their keys"
                : "for the service " + service.name() + ", as " + service.from() + " has it";
        if (service.isCommon())
            LOG.warn("limits that are written in the program are counted " + known + ": such services share these counters on"
                    + " one daemon; set spring.application.name or ratelimitd.service");
        else LOG.info("limits that are written in the program are counted " + known);
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
