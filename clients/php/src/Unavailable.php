<?php

declare(strict_types=1);

namespace Ratelimitd;

/** No answer. The program goes on by its own rule. */
final class Unavailable extends \RuntimeException
{
    /**
     * @param string $kind unreachable, timeout, lost, protocol, overloaded, shutting_down, store_unavailable or breaker
     * @param bool $maybeCharged false: certainly nothing was charged
     * @param ?string $rpcCode the daemon's code, if it sent one
     */
    public function __construct(
        public readonly string $kind,
        string $message,
        public readonly bool $maybeCharged = false,
        public readonly ?string $rpcCode = null,
    ) {
        parent::__construct($message);
    }
}
