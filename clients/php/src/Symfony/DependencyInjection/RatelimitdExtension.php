<?php

declare(strict_types=1);

namespace Ratelimitd\Symfony\DependencyInjection;

use Ratelimitd\Client;
use Ratelimitd\Limiter;
use Ratelimitd\Symfony\RateLimit;
use Ratelimitd\Symfony\RateLimitListener;
use Symfony\Component\DependencyInjection\ChildDefinition;
use Symfony\Component\DependencyInjection\ContainerBuilder;
use Symfony\Component\DependencyInjection\ContainerInterface;
use Symfony\Component\DependencyInjection\Extension\Extension;
use Symfony\Component\DependencyInjection\Reference;

/** @internal */
final class RatelimitdExtension extends Extension
{
    public function load(array $configs, ContainerBuilder $container): void
    {
        $config = $this->processConfiguration(new Configuration(), $configs);
        $container->register(Client::class, Client::class)->setPublic(true)->setArguments([
            '$socket' => $config['socket'], '$timeout' => $config['timeout'], '$rememberDenials' => $config['remember_denials'],
        ]);
        $container->register(Limiter::class, Limiter::class)->setArguments([
            '$client' => new Reference(Client::class), '$onError' => $config['on_error'], '$headers' => $config['headers'],
            '$service' => $config['service'], '$enabled' => $config['enabled'],
        ]);
        $container->register(RateLimitListener::class, RateLimitListener::class)->addTag('kernel.event_subscriber')->setArguments([
            '$limiter' => new Reference(Limiter::class), '$always' => $config['always'],
            '$routes' => new Reference('router', ContainerInterface::NULL_ON_INVALID_REFERENCE),
        ]);
        $container->registerAttributeForAutoconfiguration(
            RateLimit::class,
            static fn (ChildDefinition $service, RateLimit $limit, \ReflectionClass|\ReflectionMethod $at) => $service->addTag(
                RefuseMisplaced::TAG,
                ['at' => $at instanceof \ReflectionMethod ? "{$at->class}::{$at->name}" : $at->name],
            ),
        );
    }
}
