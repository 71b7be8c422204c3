<?php

declare(strict_types=1);

namespace Ratelimitd;

/** Thrown by withSlot() and withReservation() where they were denied. */
final class Denied extends \RuntimeException
{
    public function __construct(public readonly Decision $decision)
    {
        parent::__construct('denied' . ($decision->boundBy === null ? '' : " by {$decision->boundBy}"));
    }
}
