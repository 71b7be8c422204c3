package io.ratelimitd.spring;

import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.function.Function;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.springframework.web.method.HandlerMethod;

/**
 * The names of endpoints: their routes. GET /items/{id}; GET,POST /login.
 *
 * @param names     of each handler
 * @param variables of its path
 */
record Routes(Map<HandlerMethod, String> names, Map<HandlerMethod, Set<String>> variables) {
    private static final Pattern VARIABLE = Pattern.compile("\\{\\*?([^:{}]+)");

    /**
     * What one mapping says.
     *
     * @param methods  as declared; empty: every one
     * @param patterns of the path
     * @param others   the rest of the conditions, such as params and headers
     */
    record Mapping(Collection<?> methods, Collection<String> patterns, Stream<?> others) {
    }

    static <T> Routes of(List<Map<T, HandlerMethod>> all, Function<T, Mapping> read) {
        Map<HandlerMethod, Map<String, TreeSet<String>>> parts = new HashMap<>();
        for (Map<T, HandlerMethod> mappings : all) {
            mappings.forEach((info, handler) -> {
                Mapping mapping = read.apply(info);
                Map<String, TreeSet<String>> own = parts.computeIfAbsent(handler, one -> Map.of("methods", new TreeSet<>(),
                        "patterns", new TreeSet<>(), "others", new TreeSet<>()));
                mapping.methods().forEach(method -> own.get("methods").add(method.toString().equals("HEAD") ? "GET" : method.toString()));
                own.get("patterns").addAll(mapping.patterns());
                mapping.others().map(Object::toString).filter(text -> !text.equals("[]")).forEach(own.get("others")::add);
            });
        }

        Map<HandlerMethod, String> names = new HashMap<>();
        Map<HandlerMethod, Set<String>> variables = new HashMap<>();
        parts.forEach((handler, own) -> {
            names.put(handler, Stream.of(String.join(",", own.get("methods")), String.join(",", own.get("patterns")),
                    String.join(" ", own.get("others"))).filter(text -> !text.isEmpty()).collect(Collectors.joining(" ")));
            variables.put(handler, own.get("patterns").stream().flatMap(pattern -> {
                Matcher matcher = VARIABLE.matcher(pattern);
                return matcher.results().map(found -> found.group(1));
            }).collect(Collectors.toSet()));
        });
        return new Routes(names, variables);
    }
}
