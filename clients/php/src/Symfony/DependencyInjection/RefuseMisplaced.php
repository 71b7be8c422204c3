<?php

declare(strict_types=1);

namespace Ratelimitd\Symfony\DependencyInjection;

use Symfony\Component\DependencyInjection\Compiler\CompilerPassInterface;
use Symfony\Component\DependencyInjection\ContainerBuilder;

/** #[RateLimit] at a service that is not a controller is never asked, so the container is not built. @internal */
final class RefuseMisplaced implements CompilerPassInterface
{
    public const TAG = 'ratelimitd.limited';

    public function process(ContainerBuilder $container): void
    {
        foreach ($container->findTaggedServiceIds(self::TAG) as $id => $tags) {
            if (!$container->getDefinition($id)->hasTag('controller.service_arguments')) {
                $places = implode(', ', array_column($tags, 'at'));
                throw new \LogicException("#[RateLimit] at $places is never asked: $id is not a controller. If it is one, tag it"
                    . ' controller.service_arguments; else ask in the code, with ' . \Ratelimitd\Client::class);
            }
        }
    }
}
