<?php

declare(strict_types=1);

namespace Ratelimitd\Symfony\DependencyInjection;

use Symfony\Component\Config\Definition\Builder\TreeBuilder;
use Symfony\Component\Config\Definition\ConfigurationInterface;

/** The settings of `ratelimitd`. @internal */
final class Configuration implements ConfigurationInterface
{
    public function getConfigTreeBuilder(): TreeBuilder
    {
        $tree = new TreeBuilder('ratelimitd');
        $tree->getRootNode()->children()
            ->scalarNode('socket')->defaultNull()->info('path; default: RATELIMIT_SOCKET, else /run/ratelimitd/ratelimitd.sock')->end()
            ->floatNode('timeout')->defaultValue(0.25)->info('seconds for a whole call')->end()
            ->floatNode('remember_denials')->defaultValue(0)->info('seconds; 0: never')->end()
            ->enumNode('on_error')->values(['allow', 'deny'])->defaultValue('allow')->info('what happens without an answer')->end()
            ->enumNode('headers')->values(['ietf', 'legacy', 'both', 'none'])->defaultValue('ietf')->end()
            ->scalarNode('service')->defaultNull()->info('default: RATELIMIT_SERVICE, OTEL_SERVICE_NAME, the name for Composer')->end()
            ->booleanNode('enabled')->defaultTrue()->end()
            ->arrayNode('always')->scalarPrototype()->end()->info('limits of every request that has a route')->end()
        ->end();
        return $tree;
    }
}
