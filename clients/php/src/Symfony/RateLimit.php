<?php

declare(strict_types=1);

namespace Ratelimitd\Symfony;

use Ratelimitd\Limit;

/**
 * A limit at a controller, a method or a class: #[RateLimit('web')], #[RateLimit('10/5s')], with the options of Limit.
 * Functions are static methods: key: [self::class, 'account']. Several are charged together or not at all.
 */
#[\Attribute(\Attribute::TARGET_CLASS | \Attribute::TARGET_METHOD | \Attribute::TARGET_FUNCTION | \Attribute::IS_REPEATABLE)]
final class RateLimit
{
    public readonly Limit $limit;

    public function __construct(mixed ...$options)
    {
        $this->limit = new Limit(...$options);
    }
}
