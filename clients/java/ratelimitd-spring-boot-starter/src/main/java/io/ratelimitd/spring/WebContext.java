package io.ratelimitd.spring;

import io.ratelimitd.http.ClientAddress;
import jakarta.servlet.ServletRequest;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletRequestWrapper;
import java.security.Principal;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import org.springframework.util.ClassUtils;
import org.springframework.web.servlet.HandlerMapping;

/** A servlet request in expressions; it is `#request`, too. */
public final class WebContext extends RequestContext {
    static final Expressions EXPRESSIONS = new Expressions(WebContext.class, List.of("request", "preflight"));

    private final HttpServletRequest request;

    WebContext(String endpoint, String handler, HttpServletRequest request, ClientAddress addresses) {
        super(endpoint, handler, Map.of("request", request), addresses);
        this.request = request;
        evaluation().setVariable("preflight", isPreflight());
    }

    public HttpServletRequest getRequest() {
        return request;
    }

    @Override
    public String param(String name) {
        return request.getParameter(name);
    }

    @Override
    public String path(String name) {
        Object variables = request.getAttribute(HandlerMapping.URI_TEMPLATE_VARIABLES_ATTRIBUTE);
        return variables instanceof Map<?, ?> map && map.get(name) != null ? map.get(name).toString() : null;
    }

    @Override
    String peer() {
        String peer = request.getRemoteAddr();
        return peer == null || peer.isEmpty() ? null : peer;
    }

    @Override
    String login() {
        Principal user = request.getUserPrincipal();
        return user == null ? request.getRemoteUser() : user.getName();
    }

    /** A filter that finds users answers in place of the request, as Spring Security's does. One of the application may do so
     * only for those that it knows. */
    @Override
    boolean hasUserLayer() {
        ServletRequest one = request;
        while (one instanceof HttpServletRequestWrapper wrapper) {
            for (String method : new String[] {"getUserPrincipal", "getRemoteUser"})
                if (ClassUtils.getMethod(wrapper.getClass(), method).getDeclaringClass() != HttpServletRequestWrapper.class)
                    return true;
            one = wrapper.getRequest();
        }
        return request.getServletContext().getFilterRegistrations().values().stream()
                .anyMatch(filter -> isOfApplication(filter.getClassName()));
    }

    @Override
    List<String> headers(String name) {
        return Collections.list(request.getHeaders(name));
    }

    @Override
    String method() {
        return request.getMethod();
    }
}
