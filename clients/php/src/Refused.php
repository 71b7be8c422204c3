<?php

declare(strict_types=1);

namespace Ratelimitd;

/** The daemon refused the call: a mistake in the program or in the configuration. */
final class Refused extends \LogicException
{
    /** @param string[] $missing after verify(): the policies that are not configured */
    public function __construct(public readonly string $rpcCode, string $message, public readonly array $missing = [])
    {
        parent::__construct($message);
    }
}
