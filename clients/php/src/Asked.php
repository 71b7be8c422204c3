<?php

declare(strict_types=1);

namespace Ratelimitd;

/** A limit, and what it comes to for one request. @internal */
final class Asked
{
    /** the counter: it is charged once a request */
    public readonly string $id;
    public ?Decision $decision = null;
    public ?Slot $slot = null;
    public ?Reservation $reservation = null;
    /** charged without a reservation, because the daemon reserves nothing for inline policies */
    public bool $isCharged = false;
    /** another place charges it whatever the answer is */
    public bool $isCertain = false;
    /** a later place refused, so its units went back */
    public bool $isReturned = false;

    public function __construct(
        public Limit $limit,
        public readonly string|array $policy,
        public readonly string $key,
        public int $cost,
        public readonly Limiter $limiter,
    ) {
        $this->id = Denials::same($limiter->client->path, is_string($policy) ? $policy : Denials::frozen(
            isset($policy['id']) ? array_diff_key($policy, ['limit' => 0]) : $policy, // what moves does not matter
        ), $key);
    }

    /** Units that this request was charged. */
    public function charged(): int
    {
        return $this->decision?->allowed && !$this->isReturned ? $this->cost : 0;
    }
}
