package io.ratelimitd.spring;

import io.ratelimitd.http.HttpAnswer;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;

/** Writes the answer to a request that a limit has stopped. A bean of this type replaces the default. */
@FunctionalInterface
public interface RateLimitResponder {
    /**
     * @param answer what the default would write: status 429 or 503, header fields (these are already set, except
     *               Content-Type) and a body
     */
    void respond(HttpServletRequest request, HttpServletResponse response, HttpAnswer answer) throws IOException;
}
