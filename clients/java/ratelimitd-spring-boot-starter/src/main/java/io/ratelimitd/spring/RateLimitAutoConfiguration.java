package io.ratelimitd.spring;

import io.micrometer.core.instrument.binder.MeterBinder;
import io.ratelimitd.RateLimitClient;
import io.ratelimitd.http.ClientAddress;
import jakarta.servlet.Filter;
import java.nio.file.Path;
import org.springframework.beans.factory.ObjectProvider;
import org.springframework.beans.factory.SmartInitializingSingleton;
import org.springframework.boot.autoconfigure.AutoConfiguration;
import org.springframework.boot.autoconfigure.condition.ConditionalOnClass;
import org.springframework.boot.autoconfigure.condition.ConditionalOnMissingBean;
import org.springframework.boot.autoconfigure.condition.ConditionalOnWebApplication;
import org.springframework.boot.context.properties.EnableConfigurationProperties;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.web.servlet.config.annotation.InterceptorRegistry;
import org.springframework.web.servlet.config.annotation.WebMvcConfigurer;
import org.springframework.web.servlet.mvc.method.annotation.RequestMappingHandlerMapping;

/** A client, limits at annotated methods, and in a servlet application at handlers and URLs. */
@AutoConfiguration
@EnableConfigurationProperties(RateLimitProperties.class)
public class RateLimitAutoConfiguration {
    @Bean
    @ConditionalOnMissingBean
    RateLimitClient rateLimitClient(RateLimitProperties properties) {
        RateLimitClient.Builder builder = RateLimitClient.builder().timeout(properties.timeout());
        if (properties.socket() != null && !properties.socket().isEmpty())
            builder.socket(Path.of(properties.socket()));
        if (!properties.enabled()) builder.enabled(false);
        return builder.build();
    }

    @Bean
    Policies rateLimitPolicies(RateLimitClient client) {
        return new Policies(client);
    }

    @Bean
    Guard rateLimitGuard(RateLimitClient client, Policies policies, RateLimitProperties properties,
                         ObjectProvider<RateLimitErrorHandler> errors) {
        return new Guard(client, policies, properties.onError(),
                errors.getIfAvailable(() -> (error, policy, call) -> OnError.DEFAULT), properties.enabled());
    }

    @Bean
    static RateLimitAdvice rateLimitAdvice(ObjectProvider<Guard> guard, ObjectProvider<Policies> policies) {
        return new RateLimitAdvice(guard, policies);
    }

    /** When every bean is made: reads the limits of all handlers, and compares all limits with the daemon. */
    @Bean
    SmartInitializingSingleton rateLimitStart(Policies policies, RateLimitProperties properties,
                                              ObjectProvider<HandlerLimits> handlers) {
        return () -> {
            handlers.ifAvailable(HandlerLimits::read);
            if (properties.enabled() && properties.verify()) policies.verify();
        };
    }

    @FunctionalInterface
    interface HandlerLimits {
        void read();
    }

    @Configuration(proxyBeanMethods = false)
    @ConditionalOnWebApplication(type = ConditionalOnWebApplication.Type.SERVLET)
    @ConditionalOnClass({Filter.class, WebMvcConfigurer.class})
    static class Web {
        @Bean
        @ConditionalOnMissingBean
        RateLimitResponder rateLimitResponder() {
            return WebGuard::respondByDefault;
        }

        @Bean
        WebGuard rateLimitWebGuard(Guard guard, RateLimitProperties properties, RateLimitResponder responder) {
            ClientAddress addresses = new ClientAddress(properties.trustedProxies(), properties.ipv6Prefix(),
                    properties.forwardedHeader());
            return new WebGuard(guard, addresses, properties.style(), responder);
        }

        @Bean
        RateLimitInterceptor rateLimitInterceptor(WebGuard guard, Policies policies) {
            return new RateLimitInterceptor(guard, policies);
        }

        @Bean
        RateLimitFilter rateLimitFilter(WebGuard guard, Policies policies, RateLimitProperties properties) {
            return new RateLimitFilter(guard, policies, properties.filters(), properties.filterOrder());
        }

        @Bean
        WebMvcConfigurer rateLimitWebMvcConfigurer(RateLimitInterceptor interceptor, RateLimitProperties properties) {
            return new WebMvcConfigurer() {
                @Override
                public void addInterceptors(InterceptorRegistry registry) {
                    registry.addInterceptor(interceptor).order(properties.interceptorOrder());
                }
            };
        }

        @Bean
        HandlerLimits rateLimitHandlerLimits(RateLimitInterceptor interceptor,
                                             ObjectProvider<RequestMappingHandlerMapping> mappings) {
            return () -> mappings.forEach(mapping ->
                    mapping.getHandlerMethods().values().forEach(interceptor::limitsOf));
        }
    }

    @Configuration(proxyBeanMethods = false)
    @ConditionalOnClass(MeterBinder.class)
    static class Metrics {
        @Bean
        MeterBinder rateLimitMetrics(RateLimitClient client) {
            return new RateLimitMetrics(client);
        }
    }
}
