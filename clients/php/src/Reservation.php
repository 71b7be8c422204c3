<?php

declare(strict_types=1);

namespace Ratelimitd;

/** A reservation: settle() or cancel() it once; otherwise its units come back at the end of its time limit. */
final class Reservation
{
    /** @internal */
    public function __construct(private Client $client, public readonly string $token)
    {
    }

    public function settle(int $actual, ?float $timeout = null): Decision
    {
        return $this->client->settle($this->token, $actual, $timeout);
    }

    public function cancel(?float $timeout = null): Decision
    {
        return $this->client->cancel($this->token, $timeout);
    }
}
