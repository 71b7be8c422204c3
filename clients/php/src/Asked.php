<?php

declare(strict_types=1);

namespace Ratelimitd;

/** A limit, and what it comes to for one request. @internal */
final class Asked
{
    public ?Decision $decision = null;
    public ?Slot $slot = null;
    public ?Reservation $reservation = null;
    /** charged without a reservation, because the daemon reserves nothing for inline policies */
    public bool $isCharged = false;

    public function __construct(
        public readonly Limit $limit,
        public readonly string|array $policy,
        public readonly string $key,
        public readonly int $cost,
    ) {
    }
}
