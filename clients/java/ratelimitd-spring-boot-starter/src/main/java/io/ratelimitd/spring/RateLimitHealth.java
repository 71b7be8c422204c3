package io.ratelimitd.spring;

import io.ratelimitd.CallOptions;
import io.ratelimitd.RateLimitClient;
import java.util.List;
import java.util.concurrent.CompletionException;
import org.springframework.boot.autoconfigure.AutoConfiguration;
import org.springframework.boot.autoconfigure.condition.ConditionalOnClass;
import org.springframework.boot.autoconfigure.condition.ConditionalOnProperty;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;

/** `ratelimitd` among the health indicators: does the daemon answer? Spring Boot 4 has moved the classes of version 3. */
@AutoConfiguration(after = RateLimitAutoConfiguration.class)
@ConditionalOnProperty(name = "management.health.ratelimitd.enabled", matchIfMissing = true)
public class RateLimitHealth {
    /** null: it answers. */
    private static Exception failure(RateLimitClient client) {
        try {
            client.callAsync("ping", List.of(), CallOptions.DEFAULTS).join();
            return null;
        } catch (CompletionException e) {
            return e.getCause() instanceof Exception cause ? cause : e;
        }
    }

    @Configuration(proxyBeanMethods = false)
    @ConditionalOnClass(org.springframework.boot.actuate.health.HealthIndicator.class)
    static class OfBoot3 {
        @Bean
        org.springframework.boot.actuate.health.HealthIndicator ratelimitdHealthIndicator(RateLimitClient client) {
            return () -> {
                Exception failure = failure(client);
                return (failure == null ? org.springframework.boot.actuate.health.Health.up()
                        : org.springframework.boot.actuate.health.Health.down(failure)).build();
            };
        }
    }

    @Configuration(proxyBeanMethods = false)
    @ConditionalOnClass(org.springframework.boot.health.contributor.HealthIndicator.class)
    static class OfBoot4 {
        @Bean
        org.springframework.boot.health.contributor.HealthIndicator ratelimitdHealthIndicator(RateLimitClient client) {
            return () -> {
                Exception failure = failure(client);
                return (failure == null ? org.springframework.boot.health.contributor.Health.up()
                        : org.springframework.boot.health.contributor.Health.down(failure)).build();
            };
        }
    }
}
