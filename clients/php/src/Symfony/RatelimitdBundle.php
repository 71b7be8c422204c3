<?php

declare(strict_types=1);

namespace Ratelimitd\Symfony;

use Ratelimitd\Symfony\DependencyInjection\RatelimitdExtension;
use Ratelimitd\Symfony\DependencyInjection\RefuseMisplaced;
use Symfony\Component\DependencyInjection\ContainerBuilder;
use Symfony\Component\DependencyInjection\Extension\ExtensionInterface;
use Symfony\Component\HttpKernel\Bundle\Bundle;

/** Registers the client, the limiter and the listener, so that #[RateLimit] takes effect. Settings: `ratelimitd` in config/packages. */
final class RatelimitdBundle extends Bundle
{
    public function getContainerExtension(): ExtensionInterface
    {
        return new RatelimitdExtension();
    }

    public function build(ContainerBuilder $container): void
    {
        $container->addCompilerPass(new RefuseMisplaced());
    }
}
