package io.ratelimitd.spring;

import io.micrometer.core.instrument.binder.MeterBinder;
import io.ratelimitd.RateLimitClient;
import io.ratelimitd.http.ServiceName;
import jakarta.servlet.DispatcherType;
import jakarta.servlet.Filter;
import java.nio.file.Path;
import java.util.EnumSet;
import java.util.stream.Stream;
import org.springframework.beans.factory.ListableBeanFactory;
import org.springframework.beans.factory.ObjectProvider;
import org.springframework.beans.factory.SmartInitializingSingleton;
import org.springframework.boot.autoconfigure.AutoConfiguration;
import org.springframework.boot.autoconfigure.condition.ConditionalOnClass;
import org.springframework.boot.autoconfigure.condition.ConditionalOnMissingBean;
import org.springframework.boot.autoconfigure.condition.ConditionalOnWebApplication;
import org.springframework.boot.context.properties.EnableConfigurationProperties;
import org.springframework.boot.web.servlet.FilterRegistrationBean;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.core.env.Environment;
import org.springframework.web.reactive.HandlerAdapter;
import org.springframework.web.server.WebFilter;
import org.springframework.web.servlet.config.annotation.InterceptorRegistry;
import org.springframework.web.servlet.config.annotation.WebMvcConfigurer;
import org.springframework.web.servlet.mvc.method.RequestMappingInfo;
import org.springframework.web.servlet.mvc.method.annotation.RequestMappingHandlerMapping;

/** A client, limits at annotated methods, and in a servlet application at handlers and URLs. */
@AutoConfiguration
@EnableConfigurationProperties(RateLimitProperties.class)
public class RateLimitAutoConfiguration {
    @Bean
    @ConditionalOnMissingBean
    RateLimitClient rateLimitClient(RateLimitProperties properties) {
        RateLimitClient.Builder builder = RateLimitClient.builder().timeout(properties.timeout())
                .rememberDenials(properties.rememberDenials());
        if (properties.socket() != null && !properties.socket().isEmpty())
            builder.socket(Path.of(properties.socket()));
        if (!properties.enabled()) builder.enabled(false);
        return builder.build();
    }

    @Bean
    Policies rateLimitPolicies(RateLimitClient client, RateLimitProperties properties, Environment environment) {
        return new Policies(client, ServiceName.of(properties.service(), System.getenv(),
                environment.getProperty("spring.application.name"), "spring.application.name"));
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
                                              ObjectProvider<HandlerReader> handlers) {
        return () -> {
            handlers.orderedStream().forEach(HandlerReader::read);
            if (!properties.enabled()) return;
            policies.reportService();
            if (properties.verify()) policies.verify();
        };
    }

    /** Reads the limits of all handlers. */
    @FunctionalInterface
    interface HandlerReader {
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
        Answers rateLimitAnswers(RateLimitProperties properties) {
            return new Answers(properties);
        }

        @Bean
        WebGuard rateLimitWebGuard(Guard guard, Answers answers, RateLimitResponder responder) {
            return new WebGuard(guard, answers, responder);
        }

        @Bean
        HandlerLimits rateLimitHandlerLimits(Policies policies) {
            return new HandlerLimits(WebContext.EXPRESSIONS, policies);
        }

        @Bean
        RateLimitInterceptor rateLimitInterceptor(WebGuard guard, HandlerLimits limits) {
            return new RateLimitInterceptor(guard, limits);
        }

        @Bean
        FilterRegistrationBean<RateLimitFilter> rateLimitFilter(WebGuard guard, Policies policies, RateLimitProperties properties) {
            FilterRegistrationBean<RateLimitFilter> registered = new FilterRegistrationBean<>(
                    new RateLimitFilter(guard, new UrlLimits(properties.filters(), WebContext.EXPRESSIONS, policies)));
            registered.setOrder(properties.filterOrder());
            registered.setDispatcherTypes(EnumSet.allOf(DispatcherType.class));
            return registered;
        }

        @Bean
        RateLimitExceptionResolver rateLimitExceptionResolver(WebGuard guard, Answers answers) {
            return new RateLimitExceptionResolver(guard, answers);
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
        HandlerReader rateLimitHandlerReader(HandlerLimits limits, ListableBeanFactory beans,
                                             ObjectProvider<RequestMappingHandlerMapping> mappings) {
            return () -> limits.read(Routes.of(mappings.stream().map(mapping -> mapping.getHandlerMethods()).toList(),
                    (RequestMappingInfo info) -> new Routes.Mapping(info.getMethodsCondition().getMethods(), info.getPatternValues(),
                            Stream.of(info.getParamsCondition(), info.getHeadersCondition(), info.getConsumesCondition(),
                                    info.getProducesCondition()))), beans);
        }
    }

    @Configuration(proxyBeanMethods = false)
    @ConditionalOnWebApplication(type = ConditionalOnWebApplication.Type.REACTIVE)
    @ConditionalOnClass({WebFilter.class, HandlerAdapter.class})
    static class Reactive {
        @Bean
        @ConditionalOnMissingBean
        ReactiveRateLimitResponder rateLimitResponder() {
            return ReactiveGuard::respondByDefault;
        }

        @Bean
        Answers rateLimitAnswers(RateLimitProperties properties) {
            return new Answers(properties);
        }

        @Bean
        ReactiveGuard rateLimitReactiveGuard(Guard guard, Answers answers, ReactiveRateLimitResponder responder) {
            return new ReactiveGuard(guard, answers, responder);
        }

        @Bean
        HandlerLimits rateLimitHandlerLimits(Policies policies) {
            return new HandlerLimits(ReactiveContext.EXPRESSIONS, policies);
        }

        @Bean
        RateLimitWebFilter rateLimitWebFilter(ReactiveGuard guard, Policies policies, RateLimitProperties properties) {
            return new RateLimitWebFilter(guard,
                    new UrlLimits(properties.filters(), ReactiveContext.EXPRESSIONS, policies), properties.filterOrder());
        }

        @Bean
        RateLimitHandlerAdapter rateLimitHandlerAdapter(ReactiveGuard guard, HandlerLimits limits,
                                                        ObjectProvider<HandlerAdapter> adapters) {
            return new RateLimitHandlerAdapter(guard, limits, adapters);
        }

        @Bean
        ReactiveExceptionHandler rateLimitExceptionHandler(ReactiveGuard guard, Answers answers) {
            return new ReactiveExceptionHandler(guard, answers);
        }

        @Bean
        HandlerReader rateLimitHandlerReader(
                HandlerLimits limits, ListableBeanFactory beans,
                ObjectProvider<org.springframework.web.reactive.result.method.annotation.RequestMappingHandlerMapping>
                        mappings) {
            return () -> limits.read(Routes.of(mappings.stream().map(mapping -> mapping.getHandlerMethods()).toList(),
                    (org.springframework.web.reactive.result.method.RequestMappingInfo info) -> new Routes.Mapping(
                            info.getMethodsCondition().getMethods(), info.getPatternsCondition().getPatterns().stream()
                                    .map(pattern -> pattern.getPatternString()).toList(),
                            Stream.of(info.getParamsCondition(), info.getHeadersCondition(), info.getConsumesCondition(),
                                    info.getProducesCondition()))), beans);
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
